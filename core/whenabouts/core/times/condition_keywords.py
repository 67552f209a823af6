"""Timing conditions as keywords: options of the command line, arguments of SQL functions, keys of plan files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.conditions import Condition, between, deadline, delay, overlaps, possibly, within

FORMS = ("within", "deadline", "delay", "between", "overlaps")
"""Exactly one of these says what the condition is."""
_FLAGS = frozenset({"overlaps", "possibly"})
_SECOND_BOUNDS = {"since": "deadline", "until": "delay"}
CONDITION_KEYWORDS = (*FORMS, *_SECOND_BOUNDS, "confidence", "possibly")


def condition_of(keywords: Mapping[str, Any], *, needs_confidence: bool = True) -> Condition:
    """The condition that `CONDITION_KEYWORDS` describe; None counts as not given, other keywords are not looked at.

    `between` is a pair of durations, or text with a comma between them. `overlaps` and `possibly` are true or false,
    which counts as not given; they take the place of a confidence. Without `needs_confidence` none need be given.

    Raises: QueryError WA-2006 unless exactly one of `FORMS` is given, for `since` without `deadline`, for `until`
    without `delay`, for a `between` that is not a pair, and for a confidence beside `overlaps` or `possibly`; WA-2001
    for a missing confidence or one outside (0, 1]; WA-2002, WA-2003 and WA-2005 for durations.

    >>> condition_of({"deadline": "5s", "since": "0s", "confidence": "0.9"})
    Condition(lo_us=0, hi_us=5000000, confidence=0.9)
    >>> condition_of({"between": "-1s, 5s", "confidence": 0.5}) == between("-1s", "5s", confidence=0.5)
    True
    """
    given = {name: keywords[name] for name in CONDITION_KEYWORDS if keywords.get(name) is not None}
    for name in _FLAGS & given.keys():
        if not isinstance(given[name], bool):
            raise QueryError(Code.BAD_OPTION, f"{name} is {given[name]!r}", "give true or false")
        if not given[name]:
            del given[name]
    forms = [name for name in FORMS if name in given]
    if len(forms) != 1:
        problem = f"{' and '.join(forms)} are given together" if forms else "no condition is given"
        raise QueryError(Code.BAD_OPTION, problem, f"give one of {', '.join(FORMS)}")
    for second, form in _SECOND_BOUNDS.items():
        if second in given and form not in given:
            raise QueryError(Code.BAD_OPTION, f"{second} is given without {form}", f"{second} belongs to {form}")
    found = _without_confidence(forms[0], given[forms[0]], given)
    words = sorted(_FLAGS & given.keys())
    if words:
        if "confidence" in given:
            raise QueryError(
                Code.BAD_OPTION, f"confidence is given with {words[0]}", "leave it out: every possible pair is kept"
            )
        return possibly(found)
    if "confidence" not in given:
        if not needs_confidence:
            return found
        raise QueryError(Code.BAD_CONFIDENCE, "no confidence is given", "give confidence, in (0, 1], or possibly")
    return Condition(found.lo_us, found.hi_us, given["confidence"])


def _without_confidence(form: str, value: Any, given: Mapping[str, Any]) -> Condition:
    match form:
        case "within":
            return within(value)
        case "deadline":
            return deadline(value, given.get("since"))
        case "delay":
            return delay(value, given.get("until"))
        case "overlaps":
            return overlaps()
        case _:
            return between(*_pair(value))


def _pair(value: Any) -> tuple[Any, Any]:
    ends = [end.strip() for end in value.split(",")] if isinstance(value, str) else value
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise QueryError(Code.BAD_OPTION, f"between is {value!r}", "give two durations, lo and hi")
    return ends[0], ends[1]
