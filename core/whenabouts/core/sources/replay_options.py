"""Builds a replay from text options, as SQL and an engine's reader pass them; the same names on every engine.

path            files to replay (a file, a folder, a glob)
time            the time column `t`, or `t_min,t_max`; with one of the following models it is the reading `t`:
granularity     a truncated clock, e.g. `1 minute`;  rounding: down (default), up, nearest
polling         found by a poll every so often, e.g. `30 s`
latency         detected late: JSON, `{"0": "100 ms", "0.5": "200 ms", "1": "5 s"}` (quantiles) or a list of samples;
                shortest, longest: its ends
clock           a clock that may be wrong: JSON, `{"offset": "1 s", "jitter": "2 ms", "drift": 50, ...}`
templates       histograms that end at the reading: JSON, or the path of a JSON file;  template: the column of names
maxUncertainty, minUncertainty    bounds on the length of intervals `t_min,t_max`
bounds          names of the columns that a clock model adds (default `t_min,t_max`)
disorder, seed  delay rows at random by up to a duration
rowsPerSecond, speed    the pace; without either, all rows are due at once
timeZone, timeUnit      for times without a zone, and integers
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.sources.replay import Replay
from whenabouts.core.sources.time_parsing import ClockRules
from whenabouts.core.times.clock_errors import from_clock
from whenabouts.core.times.spec_builders import from_granularity, from_latency, from_polling
from whenabouts.core.times.time_specs import Histogram, Interval, Point, TimeSpec

KNOWN = (
    "path", "time", "granularity", "rounding", "polling", "latency", "shortest", "longest", "clock", "templates",
    "template", "maxUncertainty", "minUncertainty", "bounds", "disorder", "seed", "rowsPerSecond", "speed", "timeZone",
    "timeUnit",
)  # fmt: skip
"""Names of the options; case does not matter."""


def replay_of(options: Mapping[str, str], *, also: tuple[str, ...] = ()) -> Replay:
    """The replay that the options describe; `also` names further options of the engine.

    Raises QueryError WA-2006 for an unknown, missing or invalid option, and the errors of the time specifications.

    >>> replay_of({"path": "a.csv", "time": "t", "granularity": "1 minute"}).time
    Around(t='t', before=0, after=60000000)
    """
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in (*KNOWN, *also)}
    for name in given:
        if name not in known:
            raise QueryError(
                Code.BAD_OPTION, f"option {name!r} is not known", f"known are {', '.join((*KNOWN, *also))}"
            )
    return Replay(
        path=_needed(given, "path"),
        time=_time(given),
        bounds=_pair(given.get("bounds", "t_min,t_max"), "bounds"),
        disorder=given.get("disorder", 0),
        seed=int(_number(given, "seed", int) or 0),
        rows_per_second=_number(given, "rowsPerSecond", float),
        speed=_number(given, "speed", float),
        rules=ClockRules(given.get("timezone"), given.get("timeunit")),
    )


def _time(given: Mapping[str, str]) -> TimeSpec:
    """The time specification: the one model that is given, over the column `time`."""
    columns = [name.strip() for name in _needed(given, "time").split(",")]
    models = [name for name in ("granularity", "polling", "latency", "clock", "templates") if name in given]
    if len(models) > 1:
        raise QueryError(Code.BAD_OPTION, f"{' and '.join(models)} are given", "a time has one model")
    if len(columns) != 1 and (models or len(columns) != 2):
        raise QueryError(Code.BAD_OPTION, f"time is {','.join(columns)!r}", "give t, or t_min,t_max without a model")
    if not models:
        if len(columns) == 1:
            return Point(*columns)
        longest, shortest = given.get("maxuncertainty"), given.get("minuncertainty", 0)
        return Interval(columns[0], columns[1], max_uncertainty=longest, min_uncertainty=shortest)
    (t,) = columns
    match models[0]:
        case "granularity":
            return from_granularity(t, given["granularity"], rounding=given.get("rounding", "down"))
        case "polling":
            return from_polling(t, given["polling"])
        case "latency":
            latency = _json(given, "latency", (dict, list))
            samples, quantiles = (latency, None) if isinstance(latency, list) else (None, latency)
            ends = given.get("shortest"), given.get("longest")
            return from_latency(t, samples=samples, quantiles=quantiles, shortest=ends[0], longest=ends[1])
        case "clock":
            clock = _json(given, "clock", (dict,))
            odd = set(clock) - {"offset", "jitter", "drift", "synchronised", "domain", "tolerance"}
            if odd:
                raise QueryError(Code.BAD_OPTION, f"a clock has no {min(odd)!r}", "see from_clock")
            return from_clock(t, **clock)
        case _:
            text = given["templates"]
            templates = _json(given, "templates", (dict,)) if text.lstrip().startswith("{") else text
            return Histogram(t, template=given.get("template"), templates=templates)


def _needed(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise QueryError(Code.BAD_OPTION, f"option {name!r} is missing", f'give .option("{name}", ...)')
    return given[name]


def _pair(text: str, name: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or len(set(parts)) != 2 or not all(parts):
        raise QueryError(Code.BAD_OPTION, f"{name} is {text!r}", "give two names with a comma between them")
    return parts[0], parts[1]


def _number(given: Mapping[str, str], name: str, read: Callable[[str], float]) -> float | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return read(text)
    except ValueError:
        raise QueryError(Code.BAD_OPTION, f"{name} is {text!r}", "give a number") from None


def _json(given: Mapping[str, str], name: str, kinds: tuple[type, ...]) -> Any:
    try:
        value = json.loads(given[name])
    except ValueError as error:
        raise QueryError(Code.BAD_OPTION, f"{name} is not JSON: {error}", "see its documentation") from None
    if not isinstance(value, kinds):
        raise QueryError(
            Code.BAD_OPTION, f"{name} is {given[name]!r}", f"give {' or '.join(k.__name__ for k in kinds)}"
        )
    return value
