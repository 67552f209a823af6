"""What a worker does before each task."""

from __future__ import annotations

import gc
import weakref
from itertools import count

import pytest

from whenabouts.spark_plugin import workers


class Knot:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_lasting_objects_are_set_aside_and_garbage_among_them_is_not_kept_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Set aside in tasks 1, 2, 4, 8: a knot that was alive in task 2 and then dropped is gone after task 4."""
    monkeypatch.setattr(workers, "_tasks", count(1))
    try:
        workers.begin_task()
        assert gc.get_freeze_count() > 1000
        knot = Knot()
        seen = weakref.ref(knot)
        workers.begin_task()
        del knot
        gc.collect()
        workers.begin_task()
        assert seen() is not None, "it was set aside"
        workers.begin_task()
        assert seen() is None
    finally:
        gc.unfreeze()
