"""Benchmarks give Arrow one thread when they are imported; the tests after them have as many as before."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    before = pa.cpu_count()
    yield
    pa.set_cpu_count(before)
