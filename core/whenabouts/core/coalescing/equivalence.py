"""When a tuple is equivalent to the previous tuple of its group: the test by which tuples are coalesced.

Al-Kateb 2010, Appendix B ("general coalescing"). Every equivalence compares neighbours in time, so it depends neither
on the window nor on the order of arrival. All value columns must agree.

Rounding decides nothing: integers are never converted to floats, and the exact difference of two floats is compared
with the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import one_chunk, take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.deprecation import warn_of_old
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.expressions.row_predicates import call_predicate

Indices = NDArray[np.int32] | IntArray

Predicate: TypeAlias = Callable[[pa.Table, pa.Table], Any]
"""Takes two aligned tables of value columns, the previous rows and the current rows, and returns a boolean array:
whether each current row extends the run of its predecessor. Null is false.

It is called once per block, and a pair may be in any block, or in two. So the answer for a pair may depend only on the
two rows of that pair, not on other rows in the tables, on their number or on earlier calls. Before the query runs it is
called with two empty tables.
"""

TRENDS = ("increasing", "non_decreasing", "decreasing", "non_increasing")
TOLERANCES = {"absolute_tolerance": "within_value", "relative_tolerance": "within_relative"}
"""The public names of the kinds that have a bound. Checkpoints hold the kinds, so these names must not change."""

BOUNDED = tuple(TOLERANCES.values())
KINDS = ("equal", *BOUNDED, *TRENDS)
_OLD = {"within": "absolute_tolerance", "within_value": "absolute_tolerance", "within_relative": "relative_tolerance"}

_STRICT = ("increasing", "decreasing")
_TOP = np.int64(-(2**63))


@dataclass(frozen=True)
class Equivalence:
    """A test of neighbours; made by `absolute_tolerance`, `relative_tolerance`, `parse_equivalence`.

    Null and NaN equal only themselves. An infinite value is within a bound only of itself.
    """

    kind: str
    bound: float | None = None
    predicate: Predicate | None = None

    def __str__(self) -> str:
        if self.predicate is not None:
            return getattr(self.predicate, "__name__", "a predicate")
        if self.bound is None:
            return self.kind
        (name,) = (name for name, kind in TOLERANCES.items() if kind == self.kind)
        return f"{name}({self.bound})"

    @property
    def needs_all_values(self) -> bool:
        """Whether the values of a run can differ, so that its first tuple's values do not represent the others."""
        return self.kind != "equal"


def absolute_tolerance(bound: float) -> Equivalence:
    """Values at most `bound` from the previous one: |cur - prev| <= bound.

    Raises QueryError WA-2022 unless it is a finite number (of numpy, too, or a `Fraction`) of zero or more that a float
    holds.

    >>> absolute_tolerance(0.5)
    Equivalence(kind='within_value', bound=0.5, predicate=None)
    """
    return Equivalence("within_value", _bound(bound))


def relative_tolerance(bound: float) -> Equivalence:
    """Values within a fraction of the previous one: |cur - prev| <= bound * |prev|.

    Raises QueryError WA-2022 as `absolute_tolerance`.

    >>> relative_tolerance(0.1).bound
    0.1
    """
    return Equivalence("within_relative", _bound(bound))


def parse_equivalence(value: str | Equivalence | Predicate) -> Equivalence:
    """An equivalence as users write it: a name, `absolute_tolerance:E`, `relative_tolerance:R`, an Equivalence, or a
    predicate.

    A predicate takes two tables and returns a boolean array: see `Predicate`. Raises QueryError WA-2022.

    >>> parse_equivalence("absolute_tolerance:0.5") == absolute_tolerance(0.5), parse_equivalence("increasing").kind
    (True, 'increasing')
    """
    if isinstance(value, Equivalence):
        return value
    if callable(value):
        return Equivalence("predicate", predicate=value)
    name, colon, bound = str(value).partition(":")
    if not colon and name in ("equal", *TRENDS):
        return Equivalence(name)
    current = _OLD.get(name, name)
    if not colon or current not in TOLERANCES:
        raise _bad_equivalence(value)
    try:
        number = int(bound) if bound.strip().lstrip("+").isdigit() else float(bound)
    except ValueError:
        raise _bad_equivalence(value) from None
    if name != current:
        warn_of_old(f"the equivalence {name}:E", f"{current}:E")
    return Equivalence(TOLERANCES[current], _bound(number))


def check_comparable(equivalence: Equivalence, schema: pa.Schema, values: Sequence[str]) -> None:
    """Refuse columns whose type the equivalence cannot compare (InputError WA-1023).

    A predicate is tried on two empty tables, so that an invalid one is refused before the query runs (QueryError
    WA-2022). A predicate that only fails for lack of rows, as `np.vectorize` does, is accepted.
    """
    if equivalence.predicate is not None:
        empty = schema.empty_table().select(list(values))
        try:
            _asked(equivalence.predicate, empty, empty)
        except QueryError as error:
            if not isinstance(error.__cause__, ValueError | IndexError | ArithmeticError):
                raise
    for name in values:
        type_ = schema.field(name).type
        numeric = pa.types.is_integer(type_) or pa.types.is_floating(type_)
        ordered = numeric or pa.types.is_temporal(type_) or pa.types.is_decimal(type_)
        if (equivalence.kind in BOUNDED and not numeric) or (equivalence.kind in TRENDS and not ordered):
            raise InputError(
                Code.INCOMPARABLE_VALUES,
                f"value column {name!r} is {type_}, which {equivalence} cannot compare",
                "cast it to a number, or use the equivalence 'equal' or a predicate",
            )


class Comparable(NamedTuple):
    """A value column as a comparable array; `values` is float64, or int64 in the order of the values.

    `zero`: what represents 0 among integers. `null`: which values are null; None if no value is.
    """

    values: NDArray[Any]
    null: BoolArray | None
    zero: int = 0

    def take(self, at: Indices) -> Comparable:
        """The values at these indices."""
        return Comparable(self.values[at], None if self.null is None else self.null[at], self.zero)

    def slice(self, start: int, stop: int | None) -> Comparable:
        """The values `[start, stop)`."""
        cut = slice(start, stop)
        return Comparable(self.values[cut], None if self.null is None else self.null[cut], self.zero)


def comparable(column: pa.Array | pa.ChunkedArray) -> Comparable:
    """A column as a comparable array. O(n); O(n log n) for text, decimals and nested types, which are ranked."""
    if isinstance(column, pa.ChunkedArray):
        column = one_chunk(column)
    type_ = column.type
    null = np.asarray(column.is_null()) if column.null_count else None
    if pa.types.is_floating(type_):
        floats = column.cast(pa.float64())
        return Comparable(_filled(floats, 0.0), null)
    if pa.types.is_uint64(type_):
        return Comparable(_filled(column, 0).view(np.int64) ^ _TOP, null, int(_TOP))
    if pa.types.is_int64(type_):
        return Comparable(_filled(column, 0), null)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return Comparable(_filled(column.cast(pa.int64()), 0), null)
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_) or pa.types.is_date64(type_):
        return Comparable(_filled(column.cast(pa.int64()), 0), null)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        codes = column.dictionary_encode().indices
        return Comparable(_filled(codes, 0).astype(np.int64), null)
    return Comparable(ranks_of_rows(pa.table({"v": column})), null)


def neighbours_linked(rows: pa.Table, equivalence: Equivalence, before: Indices, after: Indices) -> BoolArray:
    """Whether the rows at the indices `after` extend those at `before`, over all columns. O(rows + pairs)."""
    if not len(after):
        return np.zeros(0, bool)
    if equivalence.predicate is not None:
        return linked_by_predicate(rows, equivalence.predicate, before, after)
    columns = [comparable(column) for column in rows.columns]
    return linked([c.take(before) for c in columns], [c.take(after) for c in columns], equivalence)


def same_bits(rows: pa.Table, before: Indices, after: Indices) -> BoolArray:
    """Whether equal rows are also shown alike: 0.0 equals -0.0, but has different bits.

    >>> same_bits(pa.table({"v": [0.0, -0.0, 0.0]}), np.array([0, 0]), np.array([1, 2])).tolist()
    [False, True]
    """
    same = np.ones(len(after), bool)
    for column in rows.columns:
        if pa.types.is_floating(column.type):
            signs = np.signbit(comparable(column).values)
            same &= signs[before] == signs[after]
    return same


def linked(before: Sequence[Comparable], after: Sequence[Comparable], equivalence: Equivalence) -> BoolArray:
    """Whether the values `after` extend those `before`, over all columns. Not for predicates. O(values).

    >>> linked([comparable(pa.array([1, 1]))], [comparable(pa.array([1, 2]))], parse_equivalence("equal")).tolist()
    [True, False]
    """
    found = _agree(before[0], after[0], equivalence)
    for earlier, later in zip(before[1:], after[1:], strict=True):
        found &= _agree(earlier, later, equivalence)
    return found


def linked_by_predicate(rows: pa.Table, predicate: Predicate, before: Indices, after: Indices) -> BoolArray:
    """As `linked`, by the user's predicate: one call for all pairs. Raises QueryError WA-2022."""
    earlier, later = (take_table(rows, at).combine_chunks() for at in (before, after))
    return _asked(predicate, earlier, later)


def _asked(predicate: Predicate, earlier: pa.Table, later: pa.Table) -> BoolArray:
    name = getattr(predicate, "__name__", type(predicate).__name__)
    return call_predicate(
        predicate, earlier, later,
        code=Code.BAD_EQUIVALENCE,
        what=f"the equivalence function {name}",
        hint="it is called once with two tables, the previous and the current rows, and returns a boolean array: "
        'lambda prev, cur: pc.less(pc.abs(pc.subtract(cur["v"], prev["v"])), 1)',
    )  # fmt: skip


def _agree(before: Comparable, after: Comparable, equivalence: Equivalence) -> BoolArray:
    floats = before.values.dtype == np.float64
    rounds = floats or equivalence.kind in BOUNDED
    with np.errstate(invalid="ignore", over="ignore") if rounds else nullcontext():
        match equivalence.kind:
            case "equal":
                agree = after.values == before.values
            case "increasing":
                agree = after.values > before.values
            case "non_decreasing":
                agree = after.values >= before.values
            case "decreasing":
                agree = after.values < before.values
            case "non_increasing":
                agree = after.values <= before.values
            case _ if floats:
                agree = _near_floats(before.values, after.values, equivalence)
            case _:
                agree = _near_integers(before, after, equivalence)
    of_equals = equivalence.kind not in _STRICT
    if floats and of_equals:
        agree |= np.isnan(before.values) & np.isnan(after.values)
    if before.null is not None and after.null is not None:
        some = before.null | after.null
        agree = np.where(some, (before.null & after.null) & of_equals, agree)
    return np.asarray(agree)


def _near_floats(before: FloatArray, after: FloatArray, equivalence: Equivalence) -> BoolArray:
    """|after - before| <= limit, exactly: if the rounded sides are equal, the rounding errors decide."""
    bound = float(equivalence.bound or 0.0)
    infinite = np.isinf(before) | np.isinf(after)
    difference = after - before
    distance = np.abs(difference)
    if equivalence.kind == "within_value":
        limit: Any = bound
        rest = _rounding_error(after, before, difference) * np.sign(difference)
        near = (distance < limit) | ((distance == limit) & (rest <= 0))
    else:
        limit = bound * np.abs(before)
        near = distance < limit
        for i in np.flatnonzero((distance == limit) & (before != after) & ~infinite):  # both may have overflowed
            exact = abs(Fraction(after[i]) - Fraction(before[i]))
            near[i] = exact <= Fraction(bound) * abs(Fraction(before[i]))
    return np.where(infinite, before == after, near | (before == after))


def _rounding_error(after: FloatArray, before: FloatArray, difference: FloatArray) -> Any:
    """after - before - difference, exactly (Knuth's TwoSum)."""
    part = difference - after
    return (after - (difference - part)) - (before + part)


def _near_integers(before: Comparable, after: Comparable, equivalence: Equivalence) -> BoolArray:
    """|after - before| <= limit in unsigned 64-bit arithmetic, which cannot overflow."""
    bound = Fraction(equivalence.bound or 0)
    distance = _distance(before.values, after.values)
    if equivalence.kind == "within_value":
        most = math.floor(bound)
        return distance <= np.uint64(most) if most < 2**64 else np.ones(len(distance), bool)
    size = _distance(before.values, np.full_like(before.values, before.zero))
    limit = float(bound) * size.astype(np.float64)
    near = distance.astype(np.float64) < limit
    close = np.abs(distance.astype(np.float64) - limit) <= 1e-12 * limit
    for i in np.flatnonzero(close):
        near[i] = int(distance[i]) <= bound * int(size[i])
    return near


def _distance(one: IntArray, other: IntArray) -> NDArray[np.uint64]:
    low, high = np.minimum(one, other), np.maximum(one, other)
    return high.view(np.uint64) - low.view(np.uint64)


def _filled(column: pa.Array, nothing: float) -> NDArray[Any]:
    filled = column.fill_null(nothing) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _bound(bound: Any) -> float:
    given: Any = bound.item() if isinstance(bound, np.generic) else bound  # numpy would round it before it compares
    try:
        held = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
    except OverflowError:
        held = math.inf
    if not 0 <= held < math.inf or held != given:
        raise QueryError(
            Code.BAD_EQUIVALENCE, f"the bound is {bound!r}", "give a number of zero or more that a float holds"
        )
    return held


def _bad_equivalence(value: object) -> QueryError:
    return QueryError(
        Code.BAD_EQUIVALENCE,
        f"equivalence is {value!r}",
        f"choose one of equal, absolute_tolerance:E, relative_tolerance:R, {', '.join(TRENDS)}, or give a function "
        "that takes two tables (the previous rows and the current rows) and returns a boolean array",
    )
