"""Clocks in as-of joins: the offset of the right clock is common to all right rows, so the left time carries it."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.times.distributions import spend_of, sum_of_uniforms
from whenabouts.core.times.time_specs import Around, Distributed


def tail(lengths: tuple[int, ...], y: int) -> Fraction:
    """The probability that a sum of uniforms in [-length, length] exceeds y (Irwin, Hall)."""
    n, total, volume = len(lengths), Fraction(0), Fraction(1)
    for signs in product((1, -1), repeat=n):
        reach = sum(sign * length for sign, length in zip(signs, lengths, strict=True)) - y
        total += int(np.prod(signs)) * max(reach, 0) ** n
    for k, length in enumerate(lengths, 1):
        volume *= 2 * length * k
    return total / volume


@pytest.mark.parametrize(
    "lengths", [(1_000, 1_000, 1_000), (300, 2_000, 50_000), (10, 900_000, 1_000_000), (7, 11, 5_000_000), (400, 900)]
)
def test_a_sum_of_uniforms_is_within_its_tolerance(lengths: tuple[int, ...]) -> None:
    template = sum_of_uniforms(*lengths, tolerance=0.01)
    edges = [edge + template.end_us for edge in template.edges]
    assert (edges[0], edges[-1]) == (-sum(lengths), sum(lengths))
    below = np.concatenate([[0.0], np.cumsum(template.masses)])
    for y in np.linspace(edges[0], edges[-1], 401).round().astype(np.int64).tolist():
        exact = float(1 - tail(lengths, y))
        assert abs(np.interp(y, edges, below) - exact) <= spend_of(0.01) + 1e-9


def clock(t: str, **errors: Any) -> Any:
    return wa.from_clock(t, tolerance=0.01, **errors)


def resolved(left: Any, right: Any) -> tuple[Any, Any]:
    query = AsofJoin(left_time=left, right_time=right, confidence=0.5)
    return query.left_time, query.right_time


def test_offsets_go_to_the_left_time() -> None:
    own_left, own_right = {"jitter": 300}, {"jitter": 200}
    assert resolved(clock("t", **own_left, domain="a"), clock("u", **own_right, domain="a")) == (
        Around("t", 300, 300),
        Around("u", 200, 200),
    )
    left, right = resolved(clock("t", **own_left, offset=2_000), clock("u", **own_right, offset=50_000))
    assert left == Distributed("t", templates=sum_of_uniforms(300, 2_000, 50_000, tolerance=0.01))
    assert right == Around("u", 200, 200)
    assert resolved(wa.Point("t"), clock("u", offset=50)) == (Around("t", 50, 50), Around("u", 0, 0))
    assert resolved(clock("t", offset=50), wa.Interval("u", "v")) == (Around("t", 50, 50), wa.Interval("u", "v"))
    assert resolved(wa.Interval("t", "s"), clock("u", jitter=9, offset=0)) == (
        wa.Interval("t", "s"),
        Around("u", 9, 9),
    )


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_an_offset_on_the_right_gives_the_bits_of_one_on_the_left(direction: str) -> None:
    random = np.random.default_rng(3)
    left = pa.table({"t": np.sort(random.integers(0, 90_000, 40)), "id": np.arange(40)})
    right = pa.table({"u": np.sort(random.integers(0, 90_000, 30)), "v": np.arange(30)})

    def joined(left_errors: dict[str, Any], right_errors: dict[str, Any]) -> pa.Table:
        return wa.asof_join(
            left, right, left_time=clock("t", **left_errors), right_time=clock("u", **right_errors),
            direction=direction, confidence=0.1, keep="all",
        )  # fmt: skip

    on_the_left = joined({"jitter": 900, "offset": 4_000}, {"jitter": 700, "offset": 0})
    on_the_right = joined({"jitter": 900, "offset": 0}, {"jitter": 700, "offset": 4_000})
    multiset.assert_same(multiset.rows(on_the_right), multiset.rows(on_the_left), "rows")
    same = joined({"jitter": 900, "domain": "a"}, {"jitter": 700, "domain": "a"})
    none = joined({"jitter": 900, "offset": 0}, {"jitter": 700, "offset": 0})
    multiset.assert_same(multiset.rows(same), multiset.rows(none), "rows of one domain")
    assert multiset.rows(same) != multiset.rows(on_the_left)
