"""Payloads: records of a topic become columns, and unreadable ones rejected rows, whatever the records beside them."""

from __future__ import annotations

import base64
import gc
import io
import json
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import Lateness, Point, within
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.harness import LocalHarness, Variant
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.payload_decoding import decoded
from whenabouts.core.wrappers.payloads import AvroPayload, JsonPayload

COLUMNS = {"id": "int64", "k": "string", "t": "int64"}
RECORD = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "k", "type": ["null", "string"]},
        {"name": "t", "type": "long"},
    ],
}
SECOND = 1_000_000


def _query(**more: Any) -> TimingJoin:
    options: dict[str, Any] = {"on": "k", "condition": within("2 s", confidence=1)}
    return TimingJoin(left_time=Point("t"), right_time=Point("t"), **options | more)


def _json(rows: list[dict[str, Any]]) -> list[bytes | None]:
    return [json.dumps(row).encode() for row in rows]


def _avro(rows: list[dict[str, Any]]) -> list[bytes | None]:
    payloads: list[bytes | None] = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(RECORD), row)
        payloads.append(stream.getvalue())
    return payloads


def _topic(payloads: list[bytes | None], **more: list[Any]) -> pa.Table:
    return pa.table({"value": pa.array(payloads, pa.binary()), **more})


EVENTS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 5), "k": st.sampled_from(["a", "b", None]), "t": st.integers(0, 9 * SECOND)}
    ),
    max_size=8,
)
POISON = st.sampled_from([None, b"", b"oops", b"null", b"[]", b'{"id": "1"}', b'{"t": 9e99}', b'{"id": 1', b"\xff\xfe"])


@given(left=EVENTS, right=EVENTS, poison=st.lists(st.tuples(st.integers(0, 8), POISON), max_size=4), form=st.booleans())
def test_the_answer_is_that_of_the_columns_whatever_else_is_in_the_topic(
    left: list[dict[str, Any]], right: list[dict[str, Any]], poison: list[tuple[int, bytes | None]], form: bool
) -> None:
    payload = JsonPayload(COLUMNS) if form else AvroPayload(RECORD)
    written = [(_json if form else _avro)(rows) for rows in (left, right)]
    for at, what in poison:
        written[0].insert(at, _as_written(what, form))
    schema = pa.schema([("id", pa.int64()), ("k", pa.string()), ("t", pa.int64())])
    plain = run(_query(), [pa.Table.from_pylist(rows, schema) for rows in (left, right)])
    outcome = run(decoded(_query(), payload), [_topic(each) for each in written])
    assert _rows(outcome.output) == _rows(plain.output)
    refused = outcome.rejects.to_pylist()
    assert [row["code"] for row in refused] == [Code.UNREADABLE_PAYLOAD] * len(poison)
    assert Counter(row["value"] for row in refused) == Counter(_as_written(what, form) for _, what in poison)
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + len(poison)


def _as_written(poison: bytes | None, form: bool) -> bytes | None:
    """Some byte strings are Avro records by chance, but not eleven continuation bytes."""
    return poison if form or not poison else b"\xff" * 11


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.items()) for row in table.to_pylist())


def test_a_row_a_century_ahead_is_refused_and_makes_no_other_late() -> None:
    query = _query(lateness=Lateness(left="1 s", right="1 s"), on=())
    payload = JsonPayload({"id": "int64", "t": "int64"}, received="timestamp", max_ahead="1 day")
    century = 36_525 * 86_400 * SECOND
    sent = [[0, century, 1 * SECOND], [1 * SECOND, 2 * SECOND]]
    topics = {
        side: [
            _topic(_json([{"id": place, "t": t}]), timestamp=pa.array([place * SECOND], pa.timestamp("us")))
            for place, t in enumerate(times)
        ]
        for side, times in zip(("left", "right"), sent, strict=True)
    }
    engine = LocalHarness()
    running = engine.open(decoded(query, payload), Variant(streaming=True))
    for side, files in topics.items():
        running.source(side, files)
    outcome = running.collect()
    assert [(row["code"], row["id"], row["t"]) for row in outcome.rejects.to_pylist()] == [(Code.AHEAD, 1, century)]
    assert sorted(zip(outcome.output["id_left"].to_pylist(), outcome.output["id_right"].to_pylist(), strict=True)) == [
        (0, 0), (0, 1), (2, 0), (2, 1),
    ]  # fmt: skip


def test_every_type_that_json_has_a_form_for() -> None:
    columns = {
        "i": pa.int8(), "f": pa.float32(), "b": pa.bool_(), "s": pa.string(), "raw": pa.binary(), "d": pa.date32(),
        "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
    }  # fmt: skip
    good = {
        "i": 127, "f": 0.5, "b": True, "s": "é\n", "raw": base64.b64encode(b"\0\1").decode(), "d": "2024-02-29",
        "at": "2024-05-01T12:00:00.000001+02:00", "local": "2024-05-01T12:00:00.5", "unknown": {"x": [1]},
    }  # fmt: skip
    bad = [{"i": 128}, {"i": 1.5}, {"b": 1}, {"s": 1}, {"raw": "*"}, {"d": "2024-02-30"}, {"at": "2024-05-01T12:00:00"}]
    batch, fine = JsonPayload(columns).decoder()(_json([good, *bad, {}]))
    assert fine.tolist() == [True, *[False] * len(bad), True]
    assert batch.to_pylist()[0] == {
        "i": 127, "f": 0.5, "b": True, "s": "é\n", "raw": b"\0\1", "d": date(2024, 2, 29),
        "at": datetime(2024, 5, 1, 10, 0, 0, 1, tzinfo=UTC), "local": datetime(2024, 5, 1, 12, 0, 0, 500_000),
    }  # fmt: skip
    assert batch.to_pylist()[-1] == dict.fromkeys(columns)


def test_decoded_records_do_not_keep_the_garbage_collector_busy() -> None:
    decode, payloads = JsonPayload({"id": "int64", "t": "int64"}).decoder(), _json([{"id": 1, "t": 2}] * 20_000)
    gc.collect()
    before = [each["collections"] for each in gc.get_stats()]
    decode(payloads)
    assert sum(each["collections"] for each in gc.get_stats()) - sum(before) <= 2  # each visits all records so far


def test_avro_times_and_numbers_beyond_their_type() -> None:
    record = {
        "type": "record", "name": "event",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }  # fmt: skip
    payload = AvroPayload(record, skip=5)
    assert payload.schema.field("at").type == pa.timestamp("us", "UTC")
    beyond_int = bytes(5) + b"\xfe\xff\xff\xff\xff\x01" + b"\0"
    batch, fine = payload.decoder()([bytes(5) + b"\x02\x02", beyond_int, b"\x02\x02", bytes(5) + b"\x02\x02\x02"])
    assert fine.tolist() == [True, False, False, False]
    assert batch.to_pylist()[0] == {"n": 1, "at": datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}


def test_kept_columns_identify_what_is_delivered_again() -> None:
    payload = JsonPayload({"t": "int64"}, keep=("partition", "offset"))
    query = decoded(deduplicated(_query(on=()), {"left": ["partition", "offset"]}), {"left": payload})
    left = _topic(_json([{"t": 1}] * 3), partition=[0, 0, 0], offset=[7, 7, 8])
    outcome = run(query, [left, pa.table({"t": [1]})])
    assert outcome.output.num_rows == 2
    assert outcome.metrics["rows_replayed"] == 1


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ({"value": [b"{}"], "at": [1]}, "WA-1001: later rows of the left input have no column 'partition'"),
        ({"partition": [1], "at": [1]}, "WA-1001: later rows of the left input have no column 'value'"),
        ({"partition": [1], "value": [b"{}"]}, "WA-1001: later rows of the left input have no column 'at'"),
        ({"partition": ["x"], "value": [b"{}"], "at": [1]}, "WA-1002: column 'partition' of later rows"),
        ({"partition": [1], "value": [7], "at": [1]}, "WA-1002: column 'value' of later rows"),
    ],
)
def test_payloads_of_another_schema_are_an_error_with_a_code(rows: dict[str, list[object]], error: str) -> None:
    payload = JsonPayload({"t": "int64"}, keep="partition", received="at", max_ahead="1 d")
    given = pa.schema({"value": pa.binary(), "partition": pa.int64(), "at": pa.int64()})
    query = decoded(_query(on=()), {"left": payload})
    reader = query.operator([given, pa.schema({"t": pa.int64()})], streaming=True).readers[0]
    narrow = pa.record_batch({"at": [5], "value": [b'{"t": 3}'], "partition": pa.array([7], pa.int8())})
    assert reader.raw(reader.read(narrow).block).to_pylist() == [{"t": 3, "partition": 7, "value": None}]
    with pytest.raises(InputError, match=error):
        reader.read(pa.record_batch(rows))


def test_late_rows_are_rejected_in_the_decoded_columns() -> None:
    query = decoded(_query(on=(), lateness=Lateness()), JsonPayload({"id": "int64", "t": "int64"}))
    running = LocalHarness().open(query, Variant(streaming=True))
    for side in ("left", "right"):
        running.source(side, [_topic(_json([{"id": 1, "t": 9}])), _topic(_json([{"id": 2, "t": 1}]))])
    rejects = running.collect().rejects.to_pylist()
    assert [(row["code"], row["id"], row["t"], row["value"]) for row in rejects] == [(Code.LATE, 2, 1, None)] * 2


@pytest.mark.parametrize(
    "layout", [pa.large_binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.binary()), pa.string()]
)
def test_payloads_may_have_the_layout_of_another_library(layout: pa.DataType) -> None:
    rows = [{"id": 1, "k": "a", "t": 5}]
    value = pa.array([*_json(rows), b"oops"])
    topic = pa.table({"value": value.cast(layout) if not pa.types.is_dictionary(layout) else value.dictionary_encode()})
    outcome = run(decoded(_query(), JsonPayload(COLUMNS)), [topic, topic])
    assert (outcome.output.num_rows, outcome.rejects["value"].to_pylist()) == (1, [b"oops"] * 2)


def test_numbers_that_a_float_of_a_column_cannot_hold_are_rejected() -> None:
    topic = pa.table({"value": [b'{"t": 1, "v": 1e300}', b'{"t": 2, "v": -1e39}', b'{"t": 3, "v": 1e38}']})
    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1))
    outcome = run(decoded(query, JsonPayload({"t": "int64", "v": "float32"})), [topic, topic])
    assert outcome.output["t_left"].to_pylist() == [3]
    assert set(outcome.rejects["code"].to_pylist()) == {str(Code.UNREADABLE_PAYLOAD)}


def test_a_state_is_bound_to_the_columns_of_its_payloads() -> None:
    schema = pa.schema([("value", pa.binary())])
    found = [
        identity_of(decoded(_query(), JsonPayload(COLUMNS | more)), [schema, schema], 4).to_json()
        for more in ({}, {"v": "float64"})
    ]
    assert found[0] != found[1]


NULLABLE = [
    {"name": "b", "type": "boolean"}, {"name": "n", "type": ["null", "long"]},
    {"name": "e", "type": {"type": "enum", "name": "kind", "symbols": ["a", "b"]}}, {"name": "x", "type": "float"},
]  # fmt: skip
A_RECORD = bytes([1, 2, 6, 2]) + b"\0\0\xc0\x7f"  # true, 3, "b", NaN


@pytest.mark.parametrize(
    ("place", "instead"),
    [
        (0, b"\2"), (0, b"\xff"),  # booleans that are neither 0 nor 1
        (1, b"\1"), (1, b"\4"),  # branches -1 and 2 of a union of two
        (2, b"\x86\0"), (2, b"\x86\x80\x80\x80\x80\x80\x80\x80\x80\x7e"),  # a number in too many bytes, of 70 bits
        (3, b"\1"), (3, b"\4"),  # symbols -1 and 2 of an enum of two
        (7, b"\x7f\0"), (7, b""),  # a byte too many and too few
    ],
)  # fmt: skip
def test_avro_payloads_that_no_writer_writes_are_rejected(place: int, instead: bytes) -> None:
    payloads = [A_RECORD, A_RECORD[:place] + instead + A_RECORD[place + 1 :], A_RECORD]
    batch, good = AvroPayload(RECORD | {"fields": NULLABLE}).decoder()(payloads)
    assert good.tolist() == [True, False, True]
    assert [str(row) for row in batch.to_pylist()[::2]] == ["{'b': True, 'n': 3, 'e': 'b', 'x': nan}"] * 2
    assert batch.to_pylist()[1] == dict.fromkeys("bnex")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda: JsonPayload({"t": "int65"}), Code.BAD_PAYLOAD),
        (lambda: JsonPayload({"t": pa.list_(pa.int64())}), Code.BAD_PAYLOAD),
        (lambda: JsonPayload({"t": "int64", "v": "float16"}), Code.BAD_PAYLOAD),  # Arrow makes none of Python's floats
        (lambda: JsonPayload({"t": "int64"}, received="timestamp"), Code.BAD_PAYLOAD),
        (lambda: JsonPayload({"t": "int64"}, received="timestamp", max_ahead="soon"), Code.BAD_DURATION),
        (lambda: JsonPayload({"t": "int64"}, skip=-1), Code.BAD_PAYLOAD),
        (lambda: AvroPayload("{"), Code.BAD_PAYLOAD),
        (lambda: AvroPayload({"type": "map", "values": "long"}), Code.BAD_PAYLOAD),
        *[
            (lambda fields=fields: AvroPayload(RECORD | {"fields": fields}), Code.BAD_PAYLOAD)
            for fields in (
                None, "m", ["m"], [{"name": "m"}], [{"type": "long"}], [{"name": 3, "type": "long"}],
                [{"name": "m", "type": "long"}, {"name": "m", "type": "string"}],
            )
        ],
        *[
            (lambda kind=kind: AvroPayload(RECORD | {"fields": [{"name": "m", "type": kind}]}), Code.BAD_PAYLOAD)
            for kind in (
                ["long", "string"], [["null", "long"]], {"type": "long", "logicalType": []},
                {"type": "string", "logicalType": "date"},
                {"type": "int", "logicalType": "timestamp-millis"},
            )
        ],
        (lambda: AvroPayload({"type": "record", "fields": []}).decoder(), Code.BAD_PAYLOAD),
        (
            lambda: AvroPayload(RECORD | {"fields": [{"name": "m", "type": {"type": "enum", "name": "e"}}]}).decoder(),
            Code.BAD_PAYLOAD,
        ),
        (lambda: decoded(_query(), {"middle": JsonPayload(COLUMNS)}), Code.BAD_PAYLOAD),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_before_anything_runs(wrong: Any, code: Code) -> None:
    with pytest.raises(QueryError) as refused:
        wrong()
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"v": pa.binary()}, Code.MISSING_COLUMN),
        ({"value": pa.int64()}, Code.WRONG_TYPE),
        ({"value": pa.binary(), "timestamp": pa.float64()}, Code.WRONG_TYPE),
        ({"value": pa.binary(), "timestamp": pa.int64(), "id": pa.int64()}, Code.COLUMN_CLASH),
    ],
)
def test_an_input_that_holds_no_such_payloads_is_refused(schema: dict[str, pa.DataType], code: Code) -> None:
    keep = ("id",) if "id" in schema else ()
    payload = JsonPayload(COLUMNS, received="timestamp", max_ahead="1 h", keep=keep)
    with pytest.raises((InputError, QueryError)) as refused:
        decoded(_query(), payload).operator([pa.schema(list(schema.items()))] * 2, streaming=True)
    assert refused.value.code == code
