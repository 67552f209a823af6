"""Names of the additive counts that operators and hosts report, the same on every engine."""

from __future__ import annotations

from typing import Any

from whenabouts.core.errors import REASONS

ROWS_IN = "rows_in"
"""Rows that a host handed in, good or bad."""
DOUBTFUL = "rows_doubtful_unit"
"""Rows whose integer time looks like another unit than microseconds (`time_units`), whatever became of them."""
PROCESSED = "rows_processed"
"""Rows that an operator took in (they were neither malformed nor late)."""
REJECTED = "rows_rejected"
"""Rows sent to the rejects; rows_in = rows_processed + rows_rejected."""
REPLAYED = "rows_replayed"
"""Rows that equal one that was there already (coalescing); rows_in = processed + rejected + replayed in the end."""
DIGITS_CUT = "times_cut"
"""Times of usable rows that were finer than a microsecond and lost their last digits (WA-1075)."""
LATE = "rows_late"
"""Rejected rows that were behind the watermark."""
SHED = "rows_shed"
"""Rejected rows for which the state had no room (`wrappers.state_limit`)."""
MATCHED = "matched"
"""Output rows, of every kind."""
UNMATCHED = "unmatched"
"""Output rows that found no partner (outer and anti modes); they are counted in `MATCHED` too."""
PROBED = "probed"
"""Kernel calls that decided membership."""
SURE = "sure"
"""Pairs taken from a range that serves all kinds of rows at once; with templates further pairs are decided by comparing
thresholds, without a kernel call and without being counted here. In semi and anti modes rows that have such a pair."""
LOOKUP_HITS = "lookup_hits"
"""Probes answered from the look-up table of `lazy_lookup`."""
CORRELATIONS = "correlations"
"""Runs of the correlation: one per arrival block (eager) or per waiting block (lazy)."""
STORED = "rows_stored"
"""Rows written to state for the first time; again where `best` keeps a row for its partner's decision."""
EVICTED = "rows_evicted"
"""Rows dropped from state; rows_stored - rows_evicted are held now."""

COMPARED = "compared"
"""Comparisons of a tuple's values with those of the previous one of its group (coalescing)."""
COALESCED = "coalesced"
"""Tuples in emitted extents that extend the previous one of their group, out of `NEIGHBOURS`."""
NEIGHBOURS = "neighbours"
"""Tuples in extents that came out which have a previous one of their group: coalesced / neighbours estimates cp."""
MERGES = "runs_merged"
"""Early answers: how often a tuple that arrived was merged into a run, or two runs became one (`mergeTuples` of
Al-Kateb 2010)."""
SPLITS = "runs_split"
"""Early answers: how often a tuple that arrived split a run (`splitTuple`)."""
ATTACHED = "tuples_attached"
"""Early answers: tuples whose time was attached to the time vector of a run."""
DETACHED = "tuples_detached"
"""Early answers: expired tuples whose time was detached from a run that continues."""
OUT_OF_ORDER = "rows_out_of_order"
"""Rows whose time lies before that of one that arrived earlier (shared coalescing)."""
STEPS = "steps"
"""Steps that brought rows to a bucket (shared coalescing)."""
SWITCHED = "schemes_switched"
"""Changes of a query's scheme in a bucket, eager to lazy or back (shared coalescing)."""
TUPLE_TESTS = "tuple_tests"
"""Window join: tuples that were put to a partial combination, because they lay in its period."""
PERIODS = "periods"
"""Window join, backward: periods for which the place among another stream's rows was looked for; forward: formed."""
PERIODS_SHRUNK = "periods_shrunk"
"""Window join, forward: periods that took in a starting tuple of a further stream (mode 1)."""
TUPLES_DROPPED = "tuples_dropped"
"""Window join, forward: tuples that mode 1 dropped because they were older than the period."""
TUPLES_ADMITTED = "tuples_admitted"
"""Window join, forward: tuples that mode 2 admitted."""
PERIOD_TESTS = "period_tests"
"""Window join, forward: times that were tested against a period, in either mode."""
WINDOW_TESTS = "window_tests"
"""Window join: windows that were tested on a single combination (the refinement; edges with a confidence)."""
CHANCE_TERMS = "chance_terms"
"""Join aggregates: nodes of quadrature x partners whose shares change, the work of the chance functions."""
NOT_FINITE = "rows_not_finite"
"""Join aggregates: output rows in which a chance function is NaN because of a value that is NaN or infinite."""
CLOCK_STEPS = "clock_steps"
"""Watched clocks: output rows that say that a clock stepped."""
CLOCK_MISFITS = "clock_misfits"
"""Watched clocks: output rows that say that a learned clock no longer fits."""

ADDED = (
    ROWS_IN,
    PROCESSED,
    REJECTED,
    REPLAYED,
    LATE,
    MATCHED,
    UNMATCHED,
    PROBED,
    SURE,
    STORED,
    EVICTED,
    SWITCHED,
    DOUBTFUL,
)
"""Counts that every engine shows in its own channel."""


def coalesced(query: str) -> str:
    """`COALESCED` of one of several queries.

    >>> coalesced("hot")
    'coalesced.hot'
    """
    return f"{COALESCED}.{query}"


def neighbours(query: str) -> str:
    """`NEIGHBOURS` of one of several queries.

    >>> neighbours("hot")
    'neighbours.hot'
    """
    return f"{NEIGHBOURS}.{query}"


def rejected_by(code: str) -> str:
    """Rows rejected with a code.

    >>> rejected_by("WA-1010")
    'rows_rejected_WA-1010'
    """
    return f"{REJECTED}_{code}"


def state_rows(input: str) -> str:
    """Rows of an input in state after a step: a gauge, of the buckets that took part in the step."""
    return f"state_rows_{input}"


def state_bytes(input: str) -> str:
    """Bytes of these rows."""
    return f"state_bytes_{input}"


def held(gauges: dict[str, int], input: str, rows: int, size: int) -> None:
    """Add rows of an input, and their bytes, to what a bucket holds."""
    for name, value in ((state_rows(input), rows), (state_bytes(input), size)):
        gauges[name] = gauges.get(name, 0) + value


def shown(inputs: tuple[str, ...], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """All names that an engine shows for a query with these inputs; `own`: those of its `own_counts`.

    >>> shown(("left",))[-2:]
    ('state_rows_left', 'state_bytes_left')
    """
    by_code = map(rejected_by, REASONS)
    return (*ADDED, *own, *by_code, *(name(input) for input in inputs for name in (state_rows, state_bytes)))


def shown_of(query: Any) -> tuple[str, ...]:
    """All names that an engine shows for a query: those that all have, and its `own_counts`, if there are any."""
    own: tuple[str, ...] = getattr(query, "own_counts", ())
    return shown(query.inputs, own)
