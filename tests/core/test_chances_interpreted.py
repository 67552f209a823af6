"""The kernel of the chance functions gives the same bits compiled and interpreted: nothing is fused or reordered."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import numpy as np
import pytest

from whenabouts.core.arrays import jit
from whenabouts.core.join_aggregate import chance_pieces
from whenabouts.core.join_aggregate.chance_pieces import ANY, COUNT_VARIANCE, NONE, SUM_VARIANCE, Chances, Partners
from whenabouts.core.join_aggregate.shared_clock import with_offsets
from whenabouts.core.probability.histogram_arrays import NO_SHAPES, template_shapes
from whenabouts.core.probability.histogram_probability import shape_probabilities_at
from whenabouts.core.times.templates import Template

KERNELS = ("whenabouts.core.join_aggregate.piece_kernels", "whenabouts.core.join_aggregate.chance_kernels")
SHAPES = template_shapes((Template(((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6"))), Template(((0, 17, 1),))))


def interpreted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernels' modules without numba."""
    monkeypatch.setattr(jit, "compiled", lambda *_, **__: lambda function: function)
    for name in KERNELS:
        package, _, module = name.rpartition(".")
        monkeypatch.setattr(sys.modules[package], module, sys.modules[name])  # both are put back after the test
        monkeypatch.delitem(sys.modules, name)
    return [importlib.import_module(name) for name in KERNELS][-1]


@pytest.mark.parametrize("of_shapes", [False, True])
@pytest.mark.parametrize(("partners", "offsets"), [(1, ()), (4, ()), (40, ()), (4, (3,))])
def test_the_same_bits(
    partners: int, offsets: tuple[int, ...], of_shapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, rows = np.random.default_rng(partners), 4
    ends = random.integers(0, 30, rows), random.integers(-25, 60, rows * partners)
    sides = []
    for end in ends:
        number = random.integers(0, 2, len(end)).astype(np.int32) if of_shapes else None
        sides.append(chance_pieces.rows_of(end - 29, end, number, SHAPES if of_shapes else NO_SHAPES))
    left, right = sides
    at = np.repeat(np.arange(rows, dtype=np.int32), partners), np.arange(rows * partners, dtype=np.int32)
    p = shape_probabilities_at(left[:3], right[:3], *at, left.shapes, right.shapes, -7, 11)
    kept = np.flatnonzero((p > 0) & (p < 1))
    offsets = np.searchsorted(at[0][kept], np.arange(rows + 1))
    ring = Partners(offsets, at[1][kept], p[kept], None, random.normal(size=len(kept)))

    bent = with_offsets(left, offsets)

    def answer() -> Chances:
        functions = NONE | ANY | COUNT_VARIANCE | SUM_VARIANCE
        return chance_pieces.chances(
            *(bent.rows, right, -7, 11, ring, functions), at_least=(1, 3), count_at=(0.5, 0.001), bends=bent.bends
        )

    compiled = answer()
    monkeypatch.setattr(chance_pieces, "fill_chances", interpreted(monkeypatch).fill_chances)
    for one, other in zip(compiled, answer(), strict=True):
        assert one.tobytes() == other.tobytes()
