"""Hypothesis strategies for coalescing: every kind of window, slide, equivalence and scheme over a few readings."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from whenabouts.conformance import case_tables
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.core import Point
from whenabouts.core.coalescing.equivalence import BOUNDED, KINDS, Equivalence
from whenabouts.core.coalescing.query import Coalesce

GROUPS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "int": (pa.int64(), (1, 2, 7, None)),
    "float": (pa.float64(), (0.5, -0.0, 0.0, float("nan"))),
    "text": (pa.string(), ("a", "b", "", None)),
}
VALUES: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "int": (pa.int32(), (0, 1, 2, 4, None)),
    "float": (pa.float64(), (0.0, -0.0, 1.0, 1.5, 3.0, float("nan"), float("inf"), None)),
    "text": (pa.string(), ("on", "off", None)),
}


def near_or_none(previous: pa.Table, current: pa.Table) -> pa.ChunkedArray:
    """A user's predicate: values at most 1 apart, or this one missing."""
    a, b = (table["v"].cast(pa.float64()) for table in (previous, current))
    return pc.or_kleene(pc.is_null(b), pc.less_equal(pc.abs(pc.subtract(b, a)), 1.0))


class CoalescingExample(NamedTuple):
    """A query and its table."""

    query: Coalesce
    table: pa.Table


@st.composite
def queries(draw: st.DrawFn, /, unit: int, numeric: bool) -> Coalesce:
    """A query over columns `t`, `g`, `v`, `w`; text values are compared for equality only."""
    kinds: list[str | Equivalence] = [
        "equal", *(Equivalence(kind, bound if kind in BOUNDED else None) for kind in KINDS for bound in (0.0, 1.0))
    ]  # fmt: skip
    options: dict[str, Any] = {
        "equivalence": draw(st.sampled_from([*kinds, near_or_none])) if numeric else "equal",
        "scheme": draw(st.sampled_from(["eager", "lazy"])),
        "group": draw(st.sampled_from([(), "g"])),
        "values": draw(st.sampled_from(["v", ["v", "w"]])),
        "lateness": draw(st.integers(0, 5)) * unit,
    }
    if options["equivalence"] is near_or_none:
        options["values"] = "v"
    match draw(st.sampled_from(["all", "time", "rows"])):
        case "time":
            options["window"] = draw(st.integers(1, 9)) * unit
            options["closed"] = draw(st.sampled_from(["both", "right"]))
        case "rows":
            options["rows"] = draw(st.integers(1, 6))
            options["per_group"] = draw(st.booleans())
    look = draw(st.sampled_from(["end", "at", "slide", "slide"]))
    if look == "at":
        options["at"] = YEAR_2024 + draw(st.integers(-1, 22)) * unit
    elif look == "slide" and "window" in options:
        options["slide"] = draw(st.integers(1, 5)) * unit
    elif look == "slide" and "rows" in options:
        options["slide"] = draw(st.one_of(st.integers(1, 4), st.integers(1, 5).map(lambda n: f"{n * unit} us")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slides longer than the window
        return Coalesce(time=Point("t"), **options)


@st.composite
def coalescings(draw: st.DrawFn, /, units: tuple[int, ...] = (1, SECOND)) -> CoalescingExample:
    """A query and up to 14 readings: instants and groups repeat, rows too, some have no time or no group."""
    unit = draw(st.sampled_from(units))
    group, value = draw(st.sampled_from(sorted(GROUPS))), draw(st.sampled_from(sorted(VALUES)))
    query = draw(queries(unit, value != "text"))
    row = st.tuples(
        st.one_of(st.integers(0, 20), st.integers(0, 20), st.sampled_from([None, 3])),
        st.sampled_from(GROUPS[group][1]),
        st.sampled_from(VALUES[value][1]),
        st.sampled_from([0, 0, 0, 1]),
    )
    rows = draw(st.lists(row, max_size=14))
    rows += [rows[at] for at in draw(st.lists(st.integers(0, 13), max_size=2)) if at < len(rows)]
    t, g, v, w = zip(*rows, strict=True) if rows else ((),) * 4
    table = pa.table(
        {
            "t": pa.array([None if at is None else YEAR_2024 + at * unit for at in t], pa.int64()),
            "g": pa.array(g, GROUPS[group][0], from_pandas=False),
            "v": pa.array(v, VALUES[value][0], from_pandas=False),
            "w": pa.array(w, pa.int64()),
        }
    )
    return CoalescingExample(query, table)


@st.composite
def arrivals(draw: st.DrawFn, example: CoalescingExample) -> dict[str, case_tables.Files]:
    """The readings as files of a stream, out of order inside the lateness."""
    seed, query = draw(st.integers(0, 2**16)), example.query
    ordered = case_tables.reordered(example.table, Point("t"), query.lateness_us[0], seed)
    return {"events": case_tables.cut(ordered, draw(st.integers(1, 6)), seed)}
