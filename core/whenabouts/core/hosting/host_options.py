"""What every engine can be asked besides the options of a query: the host options.

They are declared once. An engine takes an option or says why it has none (`Engine.lacks`), and then refuses it with
WA-2007: docs/engine-options.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypedDict

from whenabouts.core.deprecation import warn_of_old
from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.input_checks import check_hosting
from whenabouts.core.runtime.option_checks import flag, one_of, refused, text
from whenabouts.core.wrappers.deduplication import Identifying
from whenabouts.core.wrappers.payload_decoding import Payloads
from whenabouts.core.wrappers.state_limit import StateLimit

LATENESS, SOURCE = "lateness", "source"
WATERMARKS = (LATENESS, SOURCE)

_RENAMED = {"bound": "state_limit", "dedupe": "deduplicate_by"}


class CommonHostOptions(TypedDict, total=False):
    """The fields of `HostSettings` but `max_latency`, which some queries have themselves; and deprecated names."""

    buckets: int | None
    threads: int | None
    batches: bool
    state_limit: StateLimit | None
    deduplicate_by: Identifying | None
    payloads: Payloads | None
    watermarks: str
    name: str | None
    bound: StateLimit | None
    dedupe: Identifying | None


class HostOptions(CommonHostOptions, total=False):
    """The fields of `HostSettings`, as functions take them."""

    max_latency: Duration | None


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """How an engine is to run a query; no setting but `deduplicate_by` and `payloads` changes which rows come out.

    `buckets`: into how many parts the keys are split. It limits the parallelism, and is fixed for the lifetime of a
    checkpoint. None: what the engine finds right. `threads`: how many threads of this process a call may use; None: as
    many as Arrow (`pyarrow.cpu_count()`), which is all cores unless it was set. `batches`: the result is a
    `pyarrow.RecordBatchReader`, and only rows around the current time are in memory. `state_limit`: how many rows a
    bucket of a stream may hold. `deduplicate_by`: columns that identify a row, of all inputs or by input, where sources
    deliver rows again (see `whenabouts.core.wrappers.deduplication`). `payloads`: how rows are read that hold records
    as bytes, as those of Kafka do (see `whenabouts.core.wrappers.payloads`). `watermarks`: "lateness" follows the
    greatest `t_max` of each input by its lateness; "source" keeps the watermarks that the inputs carry. `name`: what
    the query is called in the engine's job. `max_latency`: how long a row may take through the query by the wall clock.

    Raises QueryError WA-2006 for another number of buckets or threads, and for invalid limits, names and kinds of
    watermarks; WA-2002 and WA-2003 for a `max_latency` that is not a duration.
    """

    buckets: int | None = None
    threads: int | None = None
    batches: bool = False
    state_limit: StateLimit | None = None
    deduplicate_by: Identifying | None = None
    payloads: Payloads | None = None
    watermarks: str = LATENESS
    name: str | None = None
    max_latency: Duration | None = None

    def __post_init__(self) -> None:
        buckets, threads = check_hosting(self.buckets, self.state_limit, self.threads)
        object.__setattr__(self, "buckets", buckets)
        object.__setattr__(self, "threads", threads)
        flag("batches", self.batches)
        one_of("watermarks", self.watermarks, WATERMARKS)
        if self.name is not None:
            text("name", self.name)
        if self.max_latency is not None:
            parse_non_negative(self.max_latency, name="max_latency")

    def refuse(self, engine: str, lacks: Mapping[str, str]) -> None:
        """Raise QueryError WA-2007 where a setting that an engine lacks is given; `lacks` says why it has none."""
        for field in fields(self):
            if field.name in lacks and getattr(self, field.name) != field.default:
                raise QueryError(Code.NOT_AVAILABLE, f"{engine} does not support {field.name}", lacks[field.name])


class Given(NamedTuple):
    """The options of a call: the query's own, and how the engine is to run it."""

    own: dict[str, Any]
    host: dict[str, Any]


def split_options(options: Mapping[str, Any], own: tuple[str, ...]) -> Given:
    """The options of a call as those of the query, whose names are `own`, and those of the host.

    A name that both have goes to both. Deprecated names are taken, with a DeprecationWarning.

    >>> split_options({"on": "k", "buckets": 4, "max_latency": "1 s"}, ("on", "max_latency"))
    Given(own={'on': 'k', 'max_latency': '1 s'}, host={'buckets': 4, 'max_latency': '1 s'})
    """
    given = renamed(options)
    hosts = {field.name for field in fields(HostSettings)}
    return Given(
        {name: value for name, value in given.items() if name in own or name not in hosts},
        {name: value for name, value in given.items() if name in hosts},
    )


def renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The host options under their names of today. Raises QueryError WA-2006 where one is given under both names."""
    given = dict(options)
    for old, new in _RENAMED.items():
        if old in given:
            warn_of_old(f"{old}=", f"{new}=")
            value = given.pop(old)
            if value is not None and given.setdefault(new, value) is not value:
                raise refused(old, value, f"it is the deprecated name of {new}=, which is given too")
    if isinstance(given.get("watermarks"), str) and given["watermarks"] == "inputs":
        warn_of_old('watermarks="inputs"', 'watermarks="source"')
        given["watermarks"] = SOURCE
    return given
