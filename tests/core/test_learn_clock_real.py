"""Clocks of real streams that nothing pairs: catalogues of one earthquake sequence, triggers of gamma-ray bursts.

The data is not in the repository; WHENABOUTS_DATA names its folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import whenabouts as wa
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.learned_clock import LearnedClock

DATA = Path(os.environ.get("WHENABOUTS_DATA", "/nonexistent"))
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="WHENABOUTS_DATA names no folder")


def times(file: str, column: str, value: str) -> IntArray:
    rows = pq.read_table(DATA / file, columns=[column, "t"]).filter(pc.field(column) == value)
    return np.asarray(rows["t"].cast("int64").to_numpy())


def catalogue(name: str) -> IntArray:
    return times("ridgecrest_catalogs.parquet", "catalog", name)


def triggers(instrument: str) -> IntArray:
    return times("grb_gw_triggers.parquet", "src", instrument)


def learned(left: IntArray, right: IntArray, **asked: Any) -> LearnedClock:
    return wa.learn_clock(pa.table({"t": left}), pa.table({"u": right}), left_time="t", right_time="u", **asked)


@pytest.mark.parametrize(("ahead", "ppm"), [(0, 0), (1_000_000_000, 50)])
def test_two_catalogues_of_one_sequence_have_their_known_offset(ahead: int, ppm: int) -> None:
    """GaMMA is 0.465 s early in the median of the pairs within 3 s; seven hours, 703 and 1,479 earthquakes."""
    network, learner = catalogue("SCSN"), catalogue("GaMMA")
    middle = (int(network.min()) + int(network.max())) // 2
    clock = learned(network, learner + ahead + (learner - middle) * ppm // 1_000_000)
    assert clock.found
    assert abs(clock.offset_us - ahead + 465_000) < 3 * clock.offset_error_us < 60_000
    assert abs(clock.drift_ppb - 1_000 * ppm) < 3 * clock.drift_error_ppb < 6_000
    assert clock.evidence is not None
    assert clock.evidence.share == pytest.approx(0.87, abs=0.1)


def test_three_catalogues_agree_with_one_another() -> None:
    """The offset of the third to the second is that to the first less that of the second to the first."""
    network, learner, picked = (catalogue(name) for name in ("SCSN", "GaMMA", "PAL_HYPOINVERSE"))
    picked = picked[(picked > network.min() - 10_000_000) & (picked < network.max() + 10_000_000)]
    clocks = learned(network, learner), learned(network, picked), learned(learner, picked)
    first, both, second = (clock.offset_us for clock in clocks)
    assert all(clock.found for clock in clocks)
    assert abs(first + second - both) < 4 * sum(clock.offset_error_us for clock in clocks)


def test_a_catalogue_with_time_reversed_is_refused() -> None:
    network, learner = catalogue("SCSN"), catalogue("GaMMA")
    assert learned(network, network.min() + learner.max() - learner).reason == "not_significant"


def test_satellites_that_see_the_same_bursts_have_one_clock() -> None:
    """Years of triggers, whose clocks have no drift; the times of BATSE and BeppoSAX are day numbers of 0.864 s."""
    pairs = {("FERMI_GBM", "SWIFT"): 174, ("CGRO_BATSE", "SAX_GRBM"): 334}
    for (first, second), near in pairs.items():
        clock = learned(triggers(first), triggers(second), max_drift=0)
        assert clock.found
        assert abs(clock.offset_us) < 4 * clock.offset_error_us < 3_000_000
        assert 0.6 * near < clock.pairs < near


def test_one_common_event_is_no_clock() -> None:
    """Of the gravitational waves one is among the bursts of Fermi, GW170817."""
    assert learned(triggers("FERMI_GBM"), triggers("GW_4OGC_TOP"), max_drift=0).reason == "not_significant"
