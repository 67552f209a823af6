"""Clicks and conversions by formula: the same rows from numpy, and from a sequence in any SQL.

Event `n` is a conversion if `n` mod 34 is 33, otherwise a click: three conversions to a hundred clicks. Events follow
one another at equal distances, so many that a window of 28 days holds a given number of clicks. The key of a click is a
product of two hashes of its number: a few users click often, the most of them seldom, ten times in the window on
average. A conversion has the key of a click at most 28 days before it, seven on average. All is integer arithmetic
below 2^63, so that every engine computes the same. Numbers begin one window after 0, so that each conversion has its
click.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

SIDES = ("clicks", "conversions")
WINDOW_MS = 28 * 24 * 3600 * 1000
EVERY = 34
PRIME = 2**31 - 1
KEYS, DELAYS, PAIR = (1_103_515_245, 1_597_334_677), (69_069_069, 1_664_525_003), (1_566_083_941, 1_812_433_253)
FINE = 10_000
"""Into how many steps each factor of a delay is divided."""
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Clicks:
    """`held`: clicks in a window of 28 days; `days`: how long the streams are; a file has a day of them."""

    held: int
    days: int

    @property
    def events(self) -> int:
        """Clicks and conversions in 28 days, a multiple of `EVERY` times 28."""
        return max(round(self.held * EVERY / (EVERY - 1) / (28 * EVERY)), 1) * 28 * EVERY

    @property
    def keys(self) -> int:
        """How many users there are."""
        return max(self.held // 10, 1)

    def first(self, day: int) -> int:
        """The number of a day's first event."""
        return self.events + day * (self.events // 28)

    def t_ms(self, n: Longs) -> Longs:
        """Times of events."""
        return n * WINDOW_MS // self.events

    def key_of(self, n: Longs) -> Longs:
        """Keys of clicks."""
        one, other = (n * factor % PRIME % self.keys for factor in KEYS)
        return one * other // self.keys

    def clicked(self, n: Longs) -> Longs:
        """The click that each conversion follows."""
        one, other = (n * factor % PRIME % FINE for factor in DELAYS)
        click = n - 1 - self.events * one // FINE * other // FINE
        return click - (click % EVERY == EVERY - 1)

    def day(self, day: int) -> tuple[pa.Table, pa.Table]:
        """Clicks and conversions of a day, in order of time."""
        n = np.arange(self.first(day), self.first(day + 1))
        converted = n % EVERY == EVERY - 1
        clicks, conversions = n[~converted], n[converted]
        return self._table(clicks, self.key_of(clicks)), self._table(
            conversions, self.key_of(self.clicked(conversions))
        )

    def _table(self, n: Longs, keys: Longs) -> pa.Table:
        return pa.table({"id": n, "k": keys, "t": pa.array(self.t_ms(n) * 1000, pa.timestamp("us", "UTC"))})

    def write(self, folder: Path) -> None:
        """A file of each side for each day."""
        for day in range(self.days):
            for side, table in zip(SIDES, self.day(day), strict=True):
                path = folder / side / f"{day:03}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    part = path.with_suffix(".part")
                    pq.write_table(table, part, row_group_size=max(table.num_rows, 1), compression="zstd")
                    part.rename(path)

    def sql(self) -> dict[str, str]:
        """The columns of both sides over a sequence `n`, and which of its numbers each has."""

        def key(n: str) -> str:
            one, other = (f"MOD(MOD({n} * {factor}, {_long(PRIME)}), {_long(self.keys)})" for factor in KEYS)
            return f"({one} * {other} / {self.keys})"

        one, other = (f"MOD(MOD(n * {factor}, {_long(PRIME)}), {_long(FINE)})" for factor in DELAYS)
        click = f"(n - 1 - {_long(self.events)} * {one} / {FINE} * {other} / {FINE})"
        click = f"({click} - CASE WHEN MOD({click}, {EVERY}) = {EVERY - 1} THEN 1 ELSE 0 END)"
        return {
            "t_ms": f"n * {WINDOW_MS} / {self.events}",
            "clicks": key("n"), "conversions": key(click),
            "of_clicks": f"MOD(n, {EVERY}) <> {EVERY - 1}", "of_conversions": f"MOD(n, {EVERY}) = {EVERY - 1}",
        }  # fmt: skip

    def answers(self, parts: int = 0) -> list[tuple[int, int]]:
        """The number and hash of the pairs with a conversion up to each day, by sorting the clicks of each key.

        A part of the keys at a time, so that a hundred million clicks fit into memory.
        """
        parts = parts or -(-self.held // 5_000_000)
        found = np.zeros((self.days, 2), np.int64)
        for part in range(parts):
            clicks, conversions = self._of_keys(part, parts)
            keys, times = self.key_of(clicks), self.t_ms(clicks)
            span = WINDOW_MS * (self.days // 28 + 3)
            order = np.argsort(keys * span + times, kind="stable")
            places, sums = (keys * span + times)[order], np.zeros(len(order) + 1, np.int64)
            np.cumsum(clicks[order] * PAIR[0] % PRIME, out=sums[1:])
            at = self.key_of(self.clicked(conversions)) * span + self.t_ms(conversions)
            first, last = np.searchsorted(places, at - WINDOW_MS), np.searchsorted(places, at, "right")
            hashed = (sums[last] - sums[first]) % PRIME * (conversions * PAIR[1] % PRIME) % PRIME
            day = (conversions - self.first(0)) // (self.events // 28)
            np.add.at(found, (day, 0), last - first)
            np.add.at(found, (day, 1), hashed)
        pairs, hashes = np.cumsum(found, axis=0).T.tolist()
        return [(count, total % PRIME) for count, total in zip(pairs, hashes, strict=True)]

    def _of_keys(self, part: int, parts: int) -> tuple[Longs, Longs]:
        clicks, conversions = [], []
        for day in range(self.days):
            n = np.arange(self.first(day), self.first(day + 1))
            converted = n % EVERY == EVERY - 1
            one, other = n[~converted], n[converted]
            clicks.append(one[self.key_of(one) % parts == part])
            conversions.append(other[self.key_of(self.clicked(other)) % parts == part])
        return np.concatenate(clicks), np.concatenate(conversions)


def _long(number: int) -> str:
    """A literal: Flink's MOD has the type of its divisor."""
    return f"CAST({number} AS BIGINT)"


def pair_sql(click: str, conversion: str, mod: str = "MOD({}, CAST({} AS BIGINT))") -> str:
    """The hash of a pair, below 2^31: any change of a pair, and any exchange of partners, changes the sum."""
    one, other = (mod.format(f"{n} * {factor}", PRIME) for n, factor in zip((click, conversion), PAIR, strict=True))
    return mod.format(f"{one} * {other}", PRIME)


def hash_of(click: Longs, conversion: Longs) -> int:
    """The same for arrays: the sum of the pairs' hashes."""
    return int((click * PAIR[0] % PRIME * (conversion * PAIR[1] % PRIME) % PRIME).sum())


def days_of(folder: Path, side: str) -> Iterator[Path]:
    """The files of a side, in order."""
    yield from sorted((folder / side).glob("*.parquet"))


def total(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Number and hash of the pairs of several parts."""
    return sum(count for count, _ in parts), sum(hashed for _, hashed in parts) % PRIME
