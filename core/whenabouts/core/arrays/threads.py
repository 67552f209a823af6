"""Work on ranges of rows by several threads of this process. Kernels, and numpy's sort, release Python's global lock.

A host says how many threads a step may use (`using`); work is divided by `cuts` and done by `each`. What a range gives
does not depend on how the others are cut, so that the bits are the same at any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

LEAST_ROWS = 1 << 16
"""A range has at least as many rows: to hand one to a thread takes about 50 us."""

Item = TypeVar("Item")
Result = TypeVar("Result")


_pool: ContextVar[ThreadPoolExecutor | None] = ContextVar("pool", default=None)
"""The threads of the one that asks. Those that work here have only themselves."""
_number: ContextVar[int] = ContextVar("number", default=1)


@contextmanager
def using(count: int) -> Iterator[None]:
    """Within this context, work is done by up to `count` threads."""
    if count == 1:
        yield
        return
    with ThreadPoolExecutor(count, thread_name_prefix="whenabouts") as pool:
        before = _pool.set(pool), _number.set(count)
        try:
            yield
        finally:
            _pool.reset(before[0])
            _number.reset(before[1])


def cuts(rows: int) -> list[slice]:
    """Consecutive ranges of rows, one for each thread; one range if there are few rows.

    >>> with using(2):
    ...     cuts(5), cuts(1_000_001)
    ([slice(0, 5, None)], [slice(0, 500001, None), slice(500001, 1000001, None)])
    """
    size = max(-(-rows // _number.get()), LEAST_ROWS)
    return [slice(start, min(start + size, rows)) for start in range(0, max(rows, 1), size)]


def each(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `work` gives for each item, in order; by several threads if there are several items."""
    items, pool = list(items), _pool.get()
    if pool is None or len(items) < 2:
        return [work(item) for item in items]
    return list(pool.map(work, items))
