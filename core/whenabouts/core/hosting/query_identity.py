"""The identity that a query's state is bound to. It is stored with the state, so that another query can be refused.

The operators themselves refuse state that they cannot read (WA-3003) or that lacks rows (WA-3006), in their first step.
The identity is checked before a query starts, and the error names the options of the query that differ.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pyarrow as pa

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.runtime.time_slots import TimeSlots
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.times.clock_errors import Clock
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.wrappers.deduplication import Deduplicated
from whenabouts.core.wrappers.payload_decoding import Decoded
from whenabouts.core.wrappers.select_project import SelectProject

VERSION = 1
"""Version of the layout of an engine's state; a release that cannot read older state has a higher one."""

_SLOTS = "the width of time slots"
_PASSING = re.compile(r" at 0x[0-9a-fA-F]+(?=>)|, place=\(\d+, \d+\)(?=\))")
_TEXT = re.compile(r"""(?<=\), )text=(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"), (?=condition=Expression\()""")


@dataclass(frozen=True)
class Identity:
    """The kind of query, the settings that may not change while it runs, its columns, and the number of buckets.

    `implied`: what follows from settings that may change, and may not change itself. Each is compared only where both
    identities have it: those of earlier releases have none. `newer_names`: by setting, what messages call values that
    have an older name in checkpoints.
    """

    version: int
    query: str
    settings: dict[str, str]
    columns: dict[str, dict[str, str]]
    buckets: int
    implied: dict[str, str] = field(default_factory=dict)
    newer_names: dict[str, dict[str, str]] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text, without `newer_names`."""
        return json.dumps({k: v for k, v in asdict(self).items() if k != "newer_names"}, sort_keys=True)

    def check(self, found: str) -> None:
        """Refuse to continue with the state of another query; `found` is its identity as text.

        Raises EngineError WA-3003 for another version or number of buckets, WA-3032 for another query, with all
        differences.
        """
        other: dict[str, Any] = json.loads(found)
        if other.get("version") != VERSION:
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint has version {other.get('version')} of the layout, this release reads {VERSION}",
                "continue with the release that wrote it, or start from a new checkpoint",
            )
        if other["query"] != self.query:
            raise _other(f"it is of a {other['query']}, this is a {self.query}")
        before, now = other["settings"], self.settings
        if before.get("time_slots") != now.get("time_slots"):
            before, now = _comparable(before, other.get("implied", {})), _comparable(now, self.implied)
        differing = _differences(before, now, "{}", self.newer_names)
        for name in {**other["columns"], **self.columns}:
            before, now = other["columns"].get(name, {}), self.columns.get(name, {})
            differing += _differences(before, now, f"column {{!r}} of the {name} input")
        differing += _of_both(other.get("implied", {}), self.implied)
        if differing:
            raise _other("; ".join(differing))
        check_buckets(other["buckets"], self.buckets)


def identity_of(query: Query, schemas: Sequence[pa.Schema], buckets: int) -> Identity:
    """The identity of a query over inputs of these schemas.

    A query lists in `changeable` the options that may change at a restart; without it, only the lateness may, and
    `idle_after`.

    >>> from whenabouts.core import Point, within
    >>> from whenabouts.core.timing_join.query import TimingJoin
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1s", confidence=1))
    >>> schema = pa.schema({"t": pa.int64()})
    >>> identity_of(query, [schema, schema], 4).settings
    {'on': '()', 'how': "'inner'", 'best': 'None', 'time_slots': 'None'}
    """
    name, settings = _settings(query)
    columns = {
        input: {field.name: str(field.type) for field in schema}
        for input, schema in zip(query.inputs, schemas, strict=True)
    }
    return Identity(VERSION, name, settings, columns, buckets, _implied(query, buckets), _newer_names(query))


def check_buckets(found: int, asked: int) -> None:
    """Refuse, as EngineError WA-3003, a checkpoint of another number of buckets than the query asks for."""
    if found != asked:
        raise EngineError(
            Code.STATE_FORMAT,
            f"the checkpoint holds {found} buckets of keys, the query asks for {asked}",
            f"give buckets={found}, or start from a new checkpoint",
        )


def check_checkpoint(found: Iterable[str], identities: Sequence[Identity]) -> None:
    """Refuse a checkpoint whose identities (`found`, as text) belong to none of the queries that start from it.

    Raises what `Identity.check` raises for the first query.
    """
    for text in found:
        refusals = [_refusal(identity, text) for identity in identities]
        if refusals and refusals[0] is not None and None not in refusals:
            raise refusals[0]


def _refusal(identity: Identity, text: str) -> EngineError | None:
    try:
        identity.check(text)
    except EngineError as refusal:
        return refusal
    return None


def _implied(query: Query, buckets: int = 1) -> dict[str, str]:
    """What state depends on of the options that may change: the columns of times, the ends of templates about them
    (state has the end of each row's support), clocks whose offset rows share, time slots, and where queries that share
    an extent have their rows, if there are several buckets. And of those that may not, what their texts leave out.

    >>> from whenabouts.core import Point, within
    >>> from whenabouts.core.timing_join.query import TimingJoin
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("u"), condition=within("1 s", confidence=1))
    >>> _implied(query)["what right_time reads"]
    'u'
    >>> from dataclasses import replace
    >>> _implied(replace(query, time_slots="auto"))["the width of time slots"]
    '2000000 us, with partners from 1000000 us before to 1000000 us after'
    """
    if isinstance(query, Deduplicated | Decoded | SelectProject):
        implied = _implied(query.query, buckets)
        if isinstance(query, SelectProject) and "where" not in getattr(query.query, "changeable", ("where",)):
            implied["where of the join"] = repr(getattr(query.query, "where", None))  # `settings` has that of the query
        return implied
    changeable: frozenset[str] = getattr(query, "changeable", frozenset())
    times = {name: getattr(query, name) for name in ("left_time", "right_time") if name in changeable}
    implied = {f"what {name} reads": ", ".join(_read_by(spec)) for name, spec in times.items()}
    implied |= {f"how {name} has its ends": _ends_of(spec) for name, spec in times.items()}
    implied |= {
        f"the end of each template of {name}": ", ".join(f"{each} at {phi.end_us} us" for each, phi in spec.templates)
        for name, spec in times.items()
        if spec.templates and spec.end_columns[1] is None
    }
    clocks = any(isinstance(spec, Clock) for spec in times.values())  # not resolved: right rows share its offset
    implied |= {f"the clock of {name}": repr(spec) if clocks else "none" for name, spec in times.items()}
    if hasattr(query, "time_slots"):
        slots = getattr(query, "slots", None)
        if slots is None or isinstance(slots, TimeSlots):  # those of window joins follow from what `settings` has
            implied[_SLOTS] = "none" if slots is None else _described(slots)
    for option in fields(cast(Any, query)):
        if option.name not in changeable and (found := _digest_of(getattr(query, option.name))):
            implied[f"the distributions of {option.name}"] = found
    if isinstance(query, SharedCoalescing) and buckets > 1:
        implied["the group columns that all queries have"] = ", ".join(query.partitioned_by) or "none"
    return implied


def _comparable(settings: dict[str, str], implied: dict[str, str]) -> dict[str, str]:
    """The settings, with "auto" for time slots as None if that chose none: earlier releases wrote so on Flink if there
    was an `idle_after`, or watermarks of the sources."""
    if settings.get("time_slots") == repr("auto") and implied.get(_SLOTS) == "none":
        return settings | {"time_slots": repr(None)}
    return settings


def _ends_of(spec: TimeSpec) -> str:
    """Which of the two ends of a row's time are columns that it reads; state does not store these twice."""
    return " and ".join("computed" if name is None else "in a column" for name in spec.end_columns)


def _digest_of(value: object) -> str:
    """Of all templates in a value of an option, whose text names only what they span; empty if there are none."""
    parts = list(_templates_in(value))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16] if parts else ""


def _templates_in(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from _templates_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for name, phi in getattr(value, "templates", None) or ():
            yield (
                name,
                int(phi.end_us),
                np.asarray(phi.edges).tolist(),
                np.round(phi.masses, 12).tolist(),
            )  # other versions of numpy may give other last bits
        yield from _templates_in([getattr(value, each.name) for each in fields(value) if each.name != "templates"])


def _described(slots: TimeSlots) -> str:
    """To the microsecond: slots are equal if their texts are."""
    before, after = slots.before_us, slots.after_us
    return f"{slots.width_us} us, with partners from {before} us before to {after} us after"


def _read_by(spec: TimeSpec) -> list[str]:
    """The columns that a time reads."""
    return [*spec.columns, *filter(None, [spec.template_column])]


def _settings(query: Query) -> tuple[str, dict[str, str]]:
    """The kind of query, and the options that may not change."""
    if isinstance(query, Deduplicated):
        name, settings = _settings(query.query)
        return name, settings | {"dedupe": repr(query.by)}
    if isinstance(query, Decoded):
        name, settings = _settings(query.query)
        inside = [payload and (payload.schema.to_string(), payload.keep) for payload in query.payloads]
        return name, settings | {"payloads": repr(inside)}
    if isinstance(query, SelectProject):
        name, settings = _settings(query.query)
        return name, settings | {"where": repr(query.where), "derived": repr(query.derived)}
    changeable = getattr(query, "changeable", frozenset({"lateness", "idle_after"}))
    if_given: frozenset[str] = getattr(query, "recorded_if_given", frozenset())  # unknown to older checkpoints
    recorded_as = getattr(query, "recorded_as", {})  # values that have older names in checkpoints
    settings = {}
    for option in fields(cast(Any, query)):  # queries are dataclasses
        value = getattr(query, option.name)
        if option.name not in changeable and not (option.name in if_given and repr(value) == repr(option.default)):
            settings[option.name] = repr(
                recorded_as[option.name].get(value, value) if option.name in recorded_as else value
            )
    return type(query).__name__, settings


def _newer_names(query: Query) -> dict[str, dict[str, str]]:
    if isinstance(query, Deduplicated | Decoded | SelectProject):
        return _newer_names(query.query)
    recorded_as: Mapping[str, Mapping[str, str]] = getattr(query, "recorded_as", {})
    return {option: {repr(old): repr(new) for new, old in names.items()} for option, names in recorded_as.items()}


def _of_both(old: dict[str, str], new: dict[str, str]) -> list[str]:
    both = sorted(old.keys() & new.keys())
    return _differences({key: old[key] for key in both}, {key: new[key] for key in both}, "{}")


def _differences(
    old: dict[str, str],
    new: dict[str, str],
    name: str,
    newer_names: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[str]:
    def said(settings: dict[str, str], key: str) -> str:
        value = settings.get(key, "absent")
        return newer_names.get(key, {}).get(value, value)

    old, new = ({key: _PASSING.sub("", value) for key, value in settings.items()} for settings in (old, new))
    return [
        f"{name.format(key)} was {said(old, key)} and is {said(new, key)}"
        for key in {**old, **new}
        if key not in old or key not in new or _lasting(old[key]) != _lasting(new[key])
    ]


def _lasting(text: str) -> str:
    """The text without memory addresses, which differ between processes: a function is identified by its name; and
    without the places and texts of expressions in a query as text, which may be laid out otherwise.

    >>> _lasting("<function near at 0x7f3c2a0d5b20>"), _lasting("Expression('column', place=(1, 62))")
    ('<function near>', "Expression('column')")
    >>> _lasting("SqlPredicate(pair=('a', 'b'), text='a.v  < b.v', condition=Expression('<'))")
    "SqlPredicate(pair=('a', 'b'), condition=Expression('<'))"
    """
    return _TEXT.sub("", _PASSING.sub("", text))


def _other(what: str) -> EngineError:
    return EngineError(
        Code.OTHER_QUERY,
        f"the checkpoint belongs to another query: {what}",
        "start this query from a new checkpoint, or change it back",
    )
