"""Kernels that are compiled when they are first needed, and interpreted while that costs less than to compile them.

A kernel has one explicit signature. It becomes ready when it is called, or when a kernel that calls it is compiled: it
is then read from the cache or compiled, by one process of a machine while the others wait. Calls with few values are
interpreted at first: compilation takes up to a second for each kernel, and reading the first one a fifth of that.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numba  # noqa: F401  # whole, before its parts: see below
from numba.core import sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from whenabouts.core.arrays.interpreted_kernel import MOST_SECONDS, MOST_SECONDS_CACHED, Interpreted
from whenabouts.core.arrays.kernel_cache import KernelCache
from whenabouts.core.arrays.kernel_parts import digest_of_parts
from whenabouts.core.arrays.signals_held import signals_held

# A thread that imports a part of numba first holds the lock of the part and waits for that of numba. Another one that
# imports numba holds that and waits for the part's: Python then lets one of the imports fail. Whoever begins with the
# whole waits for it to be there.

_LOG = logging.getLogger("whenabouts.kernels")
"""A message at level INFO for each kernel that is compiled, and not read from the cache."""


class Kernel(CPUDispatcher):
    """A kernel with a signature of its own; other argument types are converted or refused, never compiled for."""

    _cache: Any
    _can_compile: bool
    _declared: Any
    _placed = False
    _interpreted: Interpreted | None = None
    _most_seconds = 0.0

    @classmethod
    def declare(cls, function: Callable[..., Any], signature: Any, *, inline: bool = False) -> Kernel:
        """Make a kernel of a function, for which nothing is compiled yet."""
        # As `numba.njit`, which gives the bare function if NUMBA_DISABLE_JIT is set for code of the user's.
        options = {"nopython": True, "nogil": True, "error_model": "numpy", "forceinline": inline, "boundscheck": None}
        kernel = cls(function, targetoptions=options)
        kernel._declared = signature
        return kernel

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of its arguments."""
        kinds, _ = sigutils.normalize_signature(self._declared)  # type: ignore[no-untyped-call]  # no types
        return tuple(kinds)

    @property
    def is_ready(self) -> bool:
        """Whether it can be called without being compiled or read."""
        return not self._can_compile

    @property
    def is_inlined(self) -> bool:
        """Whether it is a part of other kernels, seldom called itself."""
        return bool(self.targetoptions.get("forceinline"))

    def make_ready(self) -> None:
        """Read it from the cache, or compile it."""
        with global_compiler_lock:
            if self.is_ready:
                return
            cache = self._own_cache()
            with _compiled_once(cache):
                if cache is None or not cache.is_filled():
                    _LOG.info("compiling %s", self.py_func.__name__)
                with signals_held():
                    self.compile(self._declared)
                    self.disable_compile()
                    self._interpreted = None

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Of a call by another kernel, which is being compiled."""
        self.make_ready()
        return super().get_call_template(args, kws)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Callable[..., Any]:
        """What the caller then calls with the same arguments: numba asks here if nothing is compiled for them."""
        cache = self._own_cache()
        interpreted = self._interpreted
        if interpreted is None:
            self._most_seconds = MOST_SECONDS if cache is None or not cache.is_filled() else MOST_SECONDS_CACHED
            interpreted = Interpreted(self.py_func, self.kinds, lambda value: isinstance(value, Kernel))
            self._interpreted = interpreted
        if interpreted.is_worthwhile(args, self._most_seconds):
            return partial(self._interpreted_or_compiled, interpreted)
        self.make_ready()
        return self

    def _interpreted_or_compiled(self, interpreted: Interpreted, *args: Any) -> Any:
        try:
            return interpreted(*args)
        except Exception:  # no array of the caller is changed yet: compiled code raises it again, or does better
            _LOG.debug("%s is not interpreted", self.py_func.__name__, exc_info=True)
            self.make_ready()
            return self(*args)

    def _own_cache(self) -> KernelCache | None:
        """Looked up at the first call: it touches the disk."""
        if not self._placed:
            cache = KernelCache.of(self.py_func, digest_of_parts(self))
            if cache is not None:
                self._cache = cache
            self._placed = True
        return self._cache if isinstance(self._cache, KernelCache) else None


@contextmanager
def _compiled_once(cache: KernelCache | None) -> Iterator[None]:
    """Of several processes that find a cache empty, one compiles and the others wait, and then read."""
    if cache is None or cache.is_filled():
        yield
        return
    try:
        file = open(cache.lock_path, "w")  # noqa: SIM115  # closed below
    except OSError:
        yield
        return
    with file:
        with suppress(OSError):  # a file system without locks: each process compiles for itself
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
