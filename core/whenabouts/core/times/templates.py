"""Templates: the distribution of an event's time relative to its anchor, as a histogram (PTJoin section 2).

A template is a sequence of buckets `(lo, hi, p)`: contiguous offsets in microseconds, uniform inside each bucket. An
event names a template and gives the instant at which its last bucket ends: `H = phi + t_max - max(phi)`. Only offsets
relative to the *anchor* `max(phi)` matter, not the zero of the offsets.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, InputError, WhenaboutsError

SUM_TOLERANCE = Fraction(1, 10**9)
"""How far the probabilities of a template may sum to something else than 1; they are divided by their exact sum."""

LONGEST_US = 2**53
"""285 years: the longest template, so that a double holds every offset exactly."""


@dataclass(frozen=True)
class Template:
    """A piecewise uniform distribution of time: `buckets` of (lo, hi, p), offsets as durations.

    `p` may be a float, a Fraction, or text such as "0.1", which is exact. Raises InputError WA-1012 for no bucket, an
    empty bucket, a gap or an overlap, a negative or infinite `p`, or a sum that is not 1 within 1e-9.

    >>> template = Template(((0, 20, .1), (20, 30, .3), (30, 40, .6)))
    >>> template.edges, template.masses
    ((-40, -20, -10, 0), (0.1, 0.3, 0.6))
    """

    buckets: tuple[tuple[Duration, Duration, float | str | Fraction], ...]

    def __post_init__(self) -> None:
        given: object = self.buckets  # callers may pass any type
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise _bad(f"a template is {given!r}", "give its buckets, as [(lo, hi, p), ...]")
        object.__setattr__(self, "buckets", tuple(_bucket(bucket) for bucket in self.buckets))
        offsets = [(lo, hi) for lo, hi, _ in self._parsed]
        if not offsets:
            raise _bad("a template has no bucket", "give at least one (lo, hi, p)")
        for lo, hi in offsets:
            if lo >= hi:
                raise _bad(f"bucket ({lo}, {hi}) is empty", "lo must be below hi; merge it with its neighbour")
        for (_, end), (start, _) in pairwise(offsets):
            if end != start:
                what = "a gap" if start > end else "an overlap"
                raise _bad(
                    f"there is {what} between offset {end} and offset {start}",
                    "buckets must touch; p = 0 bridges a gap",
                )
        if offsets[-1][1] - offsets[0][0] > LONGEST_US:
            raise _bad("the template is longer than 285 years", "check its unit: offsets are microseconds")
        total = sum((p for *_, p in self._parsed), Fraction(0))
        if abs(total - 1) > SUM_TOLERANCE:
            raise _bad(f"the probabilities sum to {float(total)!r}", "they must sum to 1")

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        return {"buckets": self.buckets}  # no cached hash: hashes of text differ between processes

    @cached_property
    def _hash(self) -> int:
        """Cached: every step of a stream looks up threshold tables by up to hundreds of templates."""
        return hash(self.buckets)

    @cached_property
    def _parsed(self) -> tuple[tuple[int, int, Fraction], ...]:
        return tuple((parse_duration(lo), parse_duration(hi), Fraction(p)) for lo, hi, p in self.buckets)

    @property
    def end_us(self) -> int:
        """`max(phi)`: the offset of the anchor."""
        return self._parsed[-1][1]

    @cached_property
    def exact(self) -> tuple[tuple[int, int, Fraction], ...]:
        """Buckets (lo, hi, p) relative to the anchor, without end buckets of probability 0; the p sum to exactly 1."""
        total, end = sum(p for *_, p in self._parsed), self.end_us
        kept = [(lo - end, hi - end, p / total) for lo, hi, p in self._parsed]
        while kept[0][2] == 0:
            kept.pop(0)
        while kept[-1][2] == 0:
            kept.pop()
        return tuple(kept)

    @property
    def edges(self) -> tuple[int, ...]:
        """Microseconds from the anchor to the bucket edges of `exact`: one more than there are buckets."""
        return (*(lo for lo, _, _ in self.exact), self.exact[-1][1])

    @property
    def masses(self) -> tuple[float, ...]:
        """Probability of each bucket of `exact`, correctly rounded."""
        return tuple(float(p) for *_, p in self.exact)

    @property
    def length_us(self) -> int:
        """From the start of the support to the anchor: how long before its `t_max` an event can have happened."""
        return -self.edges[0]


def read_templates(source: Mapping[Any, Any] | str | PathLike[str]) -> tuple[tuple[str, Template], ...]:
    """Templates by name, from a mapping or a JSON file `{"name": [[lo, hi, p], ...], ...}`, in the order given.

    Raises InputError WA-1008 for a file that cannot be read, WA-1012 for an invalid template.

    >>> read_templates({"fast": [(0, 10, 1)]})
    (('fast', Template(buckets=((0, 10, 1),))),)
    """
    given: object = source  # users may pass any type
    if not isinstance(given, (Mapping, str, PathLike)):
        raise _bad(f"templates are given as a {type(given).__name__}", 'give {"name": [[lo, hi, p], ...]}, or a path')
    if not isinstance(source, Mapping):
        path = Path(source)
        try:
            source = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
        except InputError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                Code.UNREADABLE_FILE, f"templates cannot be read from {path}: {error}", "give a JSON file"
            ) from error
        if not isinstance(source, dict):
            raise _bad(f"{path} does not hold a JSON object", 'write {"name": [[lo, hi, p], ...], ...}')
    if not source:
        raise _bad("there is no template", 'write {"name": [[lo, hi, p], ...], ...}')
    return tuple((str(name), _named(name, value)) for name, value in source.items())


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; refuses a name that occurs twice, of which JSON would lose one."""
    names = [name for name, _ in members]
    found = dict(members)
    if len(found) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise _bad(f"two templates are called {twice!r}", "rename one")
    return found


def _named(name: object, value: Any) -> Template:
    if isinstance(value, Template):
        return value
    try:
        return Template(tuple(value))
    except WhenaboutsError as error:
        raise InputError(error.code, f"template {name!r}: {error.problem}", error.hint) from error
    except TypeError as error:
        raise _bad(f"template {name!r} is {value!r}", "write [[lo, hi, p], ...]") from error


def _bucket(bucket: object) -> tuple[int, int, float | str | Fraction]:
    parts = list(bucket) if isinstance(bucket, Iterable) else []
    if len(parts) != 3:
        raise _bad(f"{bucket!r} is not a bucket", "write (lo, hi, p)")
    lo, hi, p = parts
    try:
        mass = Fraction(p) if not isinstance(p, float) or math.isfinite(p) else None
    except (TypeError, ValueError, ZeroDivisionError):
        mass = None
    if mass is None or mass < 0:
        raise _bad(f"the probability of bucket ({lo}, {hi}) is {p!r}", "give a number from 0 to 1")
    return parse_duration(lo, name="a bucket's lo"), parse_duration(hi, name="a bucket's hi"), p


def _bad(problem: str, hint: str) -> InputError:
    return InputError(Code.BAD_TEMPLATE, problem, hint)
