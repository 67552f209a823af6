"""Tests import the benchmarks by name. These give Arrow one thread; the tests after them have as many as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    before = pa.cpu_count()
    yield
    pa.set_cpu_count(before)
