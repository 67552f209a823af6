"""Work on ranges of rows by several threads of this process. Kernels, and numpy's sort, release Python's global lock.

A host says how many threads a step may use (`using`); work is divided by `cuts` and done by `each`. What a range gives
does not depend on how the others are cut, so that the bits are the same at any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import pyarrow as pa

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


def available() -> int:
    """How many threads a call uses if nobody says: as many as Arrow, which are those of the cores that this process may
    use, unless OMP_NUM_THREADS or `pyarrow.set_cpu_count` says otherwise.

    Workers of Spark have OMP_NUM_THREADS, so that a call inside a user's function takes no more than its task has.
    """
    return int(pa.cpu_count())


def cuts(rows: int, per_thread: int = 1) -> list[slice]:
    """Consecutive ranges of rows, `per_thread` for each thread (several if their costs may differ); one range if there
    are few rows.

    >>> with using(2):
    ...     cuts(5), cuts(1_000_001)
    ([slice(0, 5, None)], [slice(0, 500001, None), slice(500001, 1000001, None)])
    """
    number = _number.get()
    size = rows if number == 1 else max(-(-rows // (number * per_thread)), LEAST_ROWS)
    size = max(size, 1)
    return [slice(start, min(start + size, rows)) for start in range(0, max(rows, 1), size)]


def each(work: Callable[[Item], Result], items: Iterable[Item], rows: int = LEAST_ROWS) -> list[Result]:
    """What `work` gives for each item, in order; by several threads if there are several items, and enough rows."""
    items, pool = list(items), _pool.get()
    if pool is None or len(items) < 2 or rows < LEAST_ROWS:
        return [work(item) for item in items]
    return list(pool.map(work, items))


def both(first: Callable[[], Item], second: Callable[[], Result], rows: int) -> tuple[Item, Result]:
    """What two functions give that need not wait for each other, over `rows` rows in all.

    >>> with using(2):
    ...     both(lambda: 1, lambda: "a", LEAST_ROWS)
    (1, 'a')
    """
    one, other = each(lambda work: work(), cast(tuple[Callable[[], Any], ...], (first, second)), rows)
    return one, other
