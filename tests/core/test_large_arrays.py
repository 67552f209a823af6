"""The memory of large arrays is used again when nothing refers to it, and not before."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import Point, QueryError, within
from whenabouts.core.arrays import large_arrays
from whenabouts.core.arrays.large_arrays import MEBIBYTES, Kept, kept, large_array, let_go, small
from whenabouts.core.local import timing_join
from whenabouts.core.runtime import output_memory
from whenabouts.core.runtime.output_memory import allowed_bytes

MEBIBYTE = 1 << 20
ROWS = 1 << 19


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    gc.collect()  # arrays of other tests that would go in the middle of one
    let_go()
    yield
    let_go()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_an_array_takes_the_memory_of_one_that_is_gone() -> None:
    array = large_array(ROWS, np.int64)
    at = address(array)
    assert at % (2 * MEBIBYTE) == 0
    assert len(array) == ROWS
    other = large_array(ROWS, np.int64)
    assert address(other) != at
    assert kept.nbytes == 0
    del array
    assert 8 * ROWS <= kept.nbytes <= 8 * ROWS + 2 * MEBIBYTE
    again = large_array(2 * ROWS - 100, np.int32)
    assert 0 <= address(again) - at <= 400
    assert again.dtype == np.int32
    assert kept.nbytes == 0


def test_memory_is_whole_large_pages() -> None:
    # Linux splits a large page for good if a part of it is offered back.
    array = large_array(3 * MEBIBYTE // 2, np.uint8)
    at = address(array)
    del array
    assert kept.nbytes == 2 * MEBIBYTE
    whole = large_array(2 * MEBIBYTE, np.uint8)
    assert address(whole) % (2 * MEBIBYTE) == 0
    assert 0 <= at - address(whole) < 4096


def test_arrays_begin_at_different_lines_of_their_pages() -> None:
    arrays = [large_array(ROWS - 1000, np.int64) for _ in range(6)]
    places = {address(array) % 4096 for array in arrays}
    assert len(places) == 6
    assert {place % 64 for place in places} == {0}  # as Arrow wants them
    for number, array in enumerate(arrays):
        array[:] = number
    assert [int(array.min()) for array in arrays] == [int(array.max()) for array in arrays] == list(range(6))


@pytest.mark.parametrize(
    "refer",
    [
        lambda array: array[3:5],
        lambda array: array.reshape(-1, 2)[7:9, 1],
        lambda array: array.view(np.int32)[1:],
        lambda array: memoryview(array)[5:9],
        lambda array: pa.py_buffer(array).slice(8, 16),
        lambda array: pa.Array.from_buffers(pa.int64(), len(array), [None, pa.py_buffer(array)]).slice(10, 3),
        lambda array: pa.table({"a": pa.Array.from_buffers(pa.int64(), len(array), [None, pa.py_buffer(array)])}),
    ],
)
def test_not_while_anything_refers_to_it(refer) -> None:  # type: ignore[no-untyped-def]
    array = large_array(ROWS, np.int64)
    array[:] = 7
    held = refer(array)
    del array
    assert kept.nbytes == 0
    others = [large_array(ROWS, np.int64) for _ in range(3)]
    for other in others:
        other[:] = 8
    values = held.to_pandas().to_numpy() if isinstance(held, pa.Table) else np.frombuffer(_bytes_of(held), np.uint8)
    assert set(values.ravel().tolist()) <= {7, 0}
    del held, values
    assert kept.nbytes > 0


def _bytes_of(held: object) -> bytes:
    if isinstance(held, pa.Array):
        return held.to_numpy(zero_copy_only=True).tobytes()
    return held.to_pybytes() if isinstance(held, pa.Buffer) else np.asarray(held).tobytes()


def test_many_arrays_of_many_sizes_never_share_memory() -> None:
    random = np.random.default_rng(5)
    held: dict[int, np.ndarray] = {}
    for number in range(300):
        array = large_array(int(random.integers(ROWS // 4, 2 * ROWS)), np.int64)
        array[::1000] = number
        held[number] = array[::2000] if number % 3 else array[::1000]
        del array
        for gone in random.choice(list(held), len(held) // 3, replace=False):
            del held[int(gone)]
        assert all((part == key).all() for key, part in held.items())


def test_small_arrays_are_those_of_numpy() -> None:
    assert large_array(10, np.int64).base is None
    assert len(large_array(0, np.float64)) == 0


def test_arrays_below_half_a_large_page_have_a_share_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    array = large_array(MEBIBYTE // 2, np.uint8)
    at = address(array)
    del array
    assert (small.nbytes, kept.nbytes) == (MEBIBYTE // 2, 0)
    assert address(large_array(MEBIBYTE // 2 - 100, np.uint8)) == at
    monkeypatch.setenv(MEBIBYTES, "64")
    arrays = [large_array(MEBIBYTE // 2, np.uint8) for _ in range(9)]
    arrays.clear()
    assert (small.nbytes, kept.nbytes) == (2 * MEBIBYTE, 0)
    assert let_go()
    assert (small.nbytes, kept.nbytes) == (0, 0)
    assert not let_go()


def test_of_several_the_last_is_taken_first() -> None:
    store, blocks = Kept(), [np.empty(4096, np.uint8) for _ in range(3)]
    for block in blocks:
        store.give(block, 1 << 20)
    assert [id(store.taken(4096)) for _ in range(3)] == [id(block) for block in reversed(blocks)]


def test_the_oldest_goes_first() -> None:
    store, blocks = Kept(), [np.empty(4096, np.uint8) for _ in range(4)]
    for block in blocks:
        store.give(block, 3 * 4096)
    assert store.nbytes == 3 * 4096
    assert {id(store.taken(4096)) for _ in range(3)} == {id(block) for block in blocks[1:]}
    assert store.taken(4096) is None
    assert store.nbytes == 0


def test_the_limit_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEBIBYTES, "15")
    arrays = [large_array(ROWS, np.int64) for _ in range(4)]  # 4 MiB each, and up to 2 before the first large page
    arrays.clear()
    assert 8 * MEBIBYTE <= kept.nbytes <= 15 * MEBIBYTE
    kept.clear()
    monkeypatch.setenv(MEBIBYTES, "0")
    large_array(ROWS, np.int64)
    assert kept.nbytes == 0


def test_there_is_a_limit_to_their_number() -> None:
    store = Kept()
    for _ in range(2 * large_arrays._MOST_BLOCKS):
        store.give(np.empty(4096, np.uint8), 1 << 30)
    assert store.nbytes == 4096 * large_arrays._MOST_BLOCKS


def test_whoever_finds_it_in_use_goes_without() -> None:
    store = Kept()
    block = np.empty(4096, np.uint8)
    with store._lock:
        store.give(block, 1 << 30)
    assert store.nbytes == 0
    store.give(block, 1 << 30)
    with store._lock:
        assert store.taken(4096) is None
        assert not store.clear()
    assert store.taken(4096) is block


def test_several_threads() -> None:
    def work(seed: int) -> bool:
        random = np.random.default_rng(seed)
        for _ in range(100):
            array = large_array(int(random.integers(ROWS // 4, ROWS // 2)), np.int64)
            array[:100], array[-100:] = seed, seed
            if not ((array[:100] == seed).all() and (array[-100:] == seed).all()):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("given", ["1G", "-1", "", "none"])
def test_a_setting_that_is_none_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEBIBYTES, given)
    table = pa.table({"t": np.arange(200_000)})
    with pytest.raises(QueryError, match=f"WA-2151: {MEBIBYTES} is .* give a number of mebibytes, 0 for none"):
        timing_join(table, table, left_time=Point("t"), right_time=Point("t"), condition=within(1, confidence=1))


def test_it_is_let_go_of_before_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([10, 30])
    monkeypatch.delenv(output_memory.MEBIBYTES, raising=False)
    monkeypatch.setattr(output_memory, "free_bytes", lambda: next(free))
    large_array(ROWS, np.int64)
    assert allowed_bytes(20) == 30
    assert kept.nbytes == 0


def test_and_before_an_address_space_with_a_limit_is_full() -> None:
    """In a process of its own, which may have 200 MiB more than it has."""
    resource = pytest.importorskip("resource")
    program = """
import resource
import numpy as np
from whenabouts.core.arrays.large_arrays import kept, large_array

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))
for _ in range(3):
    arrays = [large_array(5 << 20, np.int64) for _ in range(4)]
    del arrays
    assert kept.nbytes >= 160 << 20
    assert len(large_array(18 << 20, np.int64)) == 18 << 20
    assert kept.nbytes < 160 << 20
print("ok")
"""
    if not sys.platform.startswith("linux"):
        pytest.skip(f"{resource.__name__} limits nothing here")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout == "ok\n", found.stderr
