"""A free-list allocator of blocks of `2**k` elements in a pool of arrays.

`space[top]`: how much of the pool is in use; `space[free + k]`: the first free block of `2**k` elements, or -1; the
first element of a free block has the index of the next one.
"""

from __future__ import annotations

from typing import Any

from whenabouts.core.arrays.jit import INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import IntArray


@compiled(INT64(WRITE_INT64, WRITE_INT64, INT64, INT64, INT64), inline=True)
def allocate(space: IntArray, pool: IntArray, top: int, free: int, size: int) -> Any:
    """The index of a block of `2**size` elements: a free one, or a new one."""
    found = space[free + size]
    if found >= 0:
        space[free + size] = pool[found]
        return found
    found = space[top]
    space[top] += 1 << size
    return found


@compiled((WRITE_INT64, WRITE_INT64, INT64, INT64, INT64), inline=True)
def release(space: IntArray, pool: IntArray, free: int, size: int, block: int) -> None:
    """Add a block of `2**size` elements to the free list."""
    pool[block] = space[free + size]
    space[free + size] = block


@compiled(INT64(INT64), inline=True)
def log2(size: int) -> Any:
    """The least k with `2**k >= size`."""
    found = 0
    while (1 << found) < size:
        found += 1
    return found
