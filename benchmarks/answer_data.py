"""Real rows with a known truth, from a folder outside the project, as `Streams`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from answer_streams import SECOND, Side, Streams
from scoring import Array, pairs_within

import whenabouts as wa

Loaded = tuple[Streams, int, tuple[Array, Array]]
DAY_US = 86_400 * SECOND
NEAR_US = 100_000
MEASURED = 100
STATION_ERROR = "520 ms"
"""Standard deviation of a single station's estimate of the origin time, inside one event."""


def messages(folder: Path, *, measured: bool = False) -> Loaded:
    """Messages of every two of eight phones that were sent within 100 ms of each other, as the server saw them.

    The server knows when it received a message, and the round trip, so the message was sent between `received - round
    trip` and `received`, whatever the phone's clock says. The true time is that of the phone, corrected by NTP.
    `measured`: the share of the round trip that a message takes is measured on the first messages of each phone, which
    are not among the rows, and nine tenths of these shares are declared possible, instead of all.

    The pairs of phones are put on days of their own, so that no pair mixes them.
    """
    rows = pq.read_table(folder / "s9_d1_ooo_events.parquet")
    send, received, done, ack = (_us(rows, name) for name in ("send", "server_recv", "server_done", "ack"))
    trip = (ack - send) - (done - received)
    first = rows["seq"].to_numpy() < MEASURED
    shares = np.quantile(((received - send) / trip)[first], [0.05, 0.95]) if measured else (0, 1)
    most, least = (received - (share * trip).astype(np.int64) for share in shares)
    device = rows["device"].to_numpy(zero_copy_only=False)
    left: list[Array] = []
    right: list[Array] = []
    for one, other in combinations(np.unique(device), 2):
        left.append(np.flatnonzero((device == one) & ~first))
        right.append(np.flatnonzero((device == other) & ~first))

    def side(chosen: list[Array]) -> Side:
        at = np.concatenate(chosen)
        shift = np.concatenate([np.full(len(each), day * DAY_US) for day, each in enumerate(chosen)])
        low, high = least[at] + shift, most[at] + shift
        return Side(
            send[at] + shift,
            received[at] + shift,
            (low + high) // 2,
            {"t_min": low, "t_max": high},
            wa.Interval("t_min", "t_max"),
        )

    streams = Streams(side(left), side(right), NEAR_US, (np.empty(0, int), np.empty(0, int)))
    return streams, -NEAR_US, pairs_within(streams.left.true_us, streams.right.true_us, -NEAR_US, NEAR_US)


def picks(folder: Path) -> Loaded:
    """Seismic picks and the catalogued earthquakes that they belong to, according to the association of the network.

    Each pick gives an estimate of the origin time from its station alone; the catalogue has the located one.
    """
    rows = pq.read_table(folder / "ridgecrest_pal_picks.parquet")
    catalogs = pq.read_table(folder / "ridgecrest_catalogs.parquet")
    events = catalogs.filter(pc.equal(catalogs["catalog"], "PAL_HYPOINVERSE"))
    picked, origin = _us(rows, "sta_ot"), _us(events, "t")
    number = pc.fill_null(rows["pal_event"].cast(pa.int64()), -1).to_numpy()
    names = events["event_id"].cast(pa.int64()).to_numpy()
    order = np.argsort(names)
    place = np.minimum(np.searchsorted(names[order], number), len(names) - 1)
    known = names[order][place] == number
    time = wa.from_distribution("t", wa.normal(0, STATION_ERROR))
    streams = Streams(
        Side(picked, picked, picked, {"t": picked}, time),
        Side(origin, origin, origin, {"t": origin}, wa.Point("t")),
        SECOND,
        (np.flatnonzero(known), order[place[known]]),
        "left",
    )
    return streams, -SECOND, streams.related


def _us(rows: pa.Table, name: str) -> Array:
    return np.asarray(rows[name].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy())


SETS: dict[str, Callable[[Path], Loaded]] = {
    "messages of phones": messages,
    "messages, measured": partial(messages, measured=True),
    "picks of earthquakes": picks,
}
FILES = ("s9_d1_ooo_events.parquet", "ridgecrest_pal_picks.parquet", "ridgecrest_catalogs.parquet")
