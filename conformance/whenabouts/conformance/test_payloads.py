"""The law of payloads: records as bytes give the rows of their columns, and malformed records are rejected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, multiset
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.conformance.engine import Engine
from whenabouts.core import Interval, JsonPayload, Lateness, within
from whenabouts.core.harness import Variant
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.wrappers.payload_decoding import decoded

VARIANTS = {
    "batch": Variant(),
    "stream, 3 buckets, restarted": Variant(streaming=True, parallelism=3, restart_after=1),
}
QUERY = TimingJoin(
    left_time=Interval("t_min", "t_max", max_uncertainty="2 s"),
    right_time=Interval("t_min", "t_max", max_uncertainty="1 s"),
    condition=within("2 s", confidence=0.5), on="k", lateness=Lateness(left="1 s", right="1 s"),
)  # fmt: skip
PAYLOAD = JsonPayload(
    {"k": "int32", "name": "string", "t_min": "int64", "t_max": "int64"},
    keep=("offset",), received="received", max_ahead="1 h",
)  # fmt: skip
FILES, ROWS = 3, 40
CENTURY = 36_525 * 86_400 * SECOND
POISON = {"WA-1051": b"oops", "WA-1052": b'{"k": 1, "t_min": %d, "t_max": %d}' % ((YEAR_2024 + CENTURY,) * 2)}


def _columns(side: str, number: int) -> pa.Table:
    random = case_tables.rng("payloads", side, number)
    t_max = YEAR_2024 + number * 5 * SECOND + np.sort(random.integers(0, 5 * SECOND, ROWS))
    return pa.table(
        {
            "k": pa.array(random.integers(0, 3, ROWS), pa.int32()),
            "name": pa.array([None if n % 7 == 0 else f"{side} é {number}/{n}" for n in range(ROWS)]),
            "t_min": t_max - random.integers(0, SECOND, ROWS),
            "t_max": t_max,
        }
    )


def _topic(table: pa.Table, number: int) -> pa.Table:
    """The rows as a topic would hold them, with poison among them."""
    values: list[bytes | None] = [json.dumps(row).encode() for row in table.to_pylist()]
    for at, value in enumerate((*POISON.values(), None)):
        values.insert(9 * at, value)
    received = pa.array([YEAR_2024 + number * 5 * SECOND] * len(values), pa.timestamp("us", "UTC"))
    offset = number * 1000 + np.arange(len(values))
    return pa.table({"offset": offset, "value": pa.array(values, pa.binary()), "received": received})


def _kept(topics: Sequence[pa.Table]) -> pa.Table:
    """The decoded columns of the good rows, and what is kept beside them."""
    rows = [row for topic in topics for row in topic.to_pylist() if row["value"] not in (*POISON.values(), None)]
    table = pa.Table.from_pylist([json.loads(row["value"]) for row in rows], PAYLOAD.schema)
    return table.append_column("offset", pa.array([row["offset"] for row in rows]))


@pytest.mark.parametrize("variant", ["stream, 3 buckets, restarted", pytest.param("batch", marks=pytest.mark.similar)])
def test_oracle_payloads(engine: Engine, variant: str) -> None:
    """Pairs equal those of the columns; malformed records are returned unchanged, whatever is next to them."""
    plain = {side: [_columns(side, number) for number in range(FILES)] for side in ("left", "right")}
    topics = [_topic(table, number) for number, table in enumerate(plain["left"])]
    how = VARIANTS[variant]
    files: Mapping[str, Sequence[pa.Table]] = {"left": topics, "right": plain["right"]}
    if not how.streaming:
        files = {side: [pa.concat_tables(tables)] for side, tables in files.items()}
    outcome = engine.run(decoded(QUERY, {"left": PAYLOAD}), files, how)
    tables = {"left": _kept(topics), "right": pa.concat_tables(plain["right"])}
    answer = expectations.answer(QUERY, tables, expectations.read(QUERY, tables).events)
    assert answer.rows.total() > 200
    multiset.assert_same(expectations.join_rows(outcome), answer.rows, "pairs", {"query": QUERY})
    refused = Counter((row["input"], row["code"], row["value"]) for row in outcome.rejects.to_pylist())
    bad = [("WA-1051", POISON["WA-1051"]), ("WA-1051", None), ("WA-1052", POISON["WA-1052"])]
    assert refused == Counter({("left", *each): FILES for each in bad})
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]
