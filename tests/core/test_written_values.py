"""The text of a column is read as a number only if the number preserves the text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core.errors import InputError
from whenabouts.core.sources.written_values import as_type, natural_type

INTEGER, DOUBLE, TEXT, NOTHING = pa.int64(), pa.float64(), pa.string(), pa.null()


def text(*values: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.string())])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["1", "-20", "0", None, " 5 "], INTEGER),
        ([str(2**63 - 1), str(-(2**63))], INTEGER),
        (["1", str(2**63)], TEXT),
        (["1", "007"], TEXT),
        (["+5"], TEXT),
        (["0x10"], TEXT),
        (["1_000"], TEXT),
        (["\u0663"], TEXT),
        (["1e5", "2"], TEXT),
        (["1e999", "2"], TEXT),
        (["00.5"], TEXT),
        (["nan"], TEXT),
        ([""], TEXT),
        (["1.50", "2", "-0", ".5", "1.", "nan", "-inf", None], DOUBLE),
        (["1e+05", "1.5e3", "1.5E-7"], DOUBLE),
        ([str(2**53 + 1), "0.5"], TEXT),
        (["0.30000000000000004", "0.1"], DOUBLE),
        (["1.000000000000000056e-01"], DOUBLE),
        (["0.1234567890123456789"], TEXT),
        (["true", "False"], pa.bool_()),
        (["true", "1"], TEXT),
        (["2024-02-29"], pa.date32()),
        (["2023-02-29"], TEXT),
        (["2024-01-01 10:00", "2024-01-01T10:00:01"], pa.timestamp("s")),
        (["2024-01-01T10:00:00Z"], pa.timestamp("s", "UTC")),
        (["2024-01-01T10:00:00.000000001"], pa.timestamp("ns")),
        (["12:30"], TEXT),
        ([None], NOTHING),
        ([], NOTHING),
        (["1"] * 1000 + ["x"], TEXT),
    ],
)
def test_what_a_column_holds(values: list[str | None], type_: pa.DataType) -> None:
    column = text(*values)
    assert natural_type(column) == type_
    assert as_type(column, type_, "there").type == type_


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.sampled_from(["r", ".17g", ".18e"]))
def test_every_double_is_read_as_it_was_written(values: list[float], form: str) -> None:
    column = text(*(repr(value) if form == "r" else format(value, form) for value in values))
    whole = natural_type(column) == INTEGER
    assert whole <= (form == ".17g")  # which writes 1.0 as 1
    assert as_type(column, INTEGER if whole else DOUBLE, "there").to_pylist() == values


@given(st.lists(st.from_regex(r"\A-?[0-9]{0,22}(\.[0-9]{0,22})?\Z"), min_size=1, max_size=3))
def test_a_number_is_what_its_text_says(values: list[str]) -> None:
    column = text(*values)
    found = natural_type(column)
    if found == INTEGER:
        assert [str(value) for value in as_type(column, found, "there").to_pylist()] == values
    elif found == DOUBLE:
        for value, written in zip(as_type(column, found, "there").to_pylist(), values, strict=True):
            digits = len(written.lstrip("-").replace(".", "").lstrip("0"))
            assert float(written) == value
            assert not digits or format(abs(value), f".{digits - 1}e").split("e")[0].replace(".", "") == (
                written.lstrip("-").replace(".", "").lstrip("0")
            )


@pytest.mark.parametrize(
    ("values", "type_", "told"),
    [
        (["7", "007"], INTEGER, "'007' in row 1"),
        (["7", "x", "y"], INTEGER, "'x' in row 1"),
        (["7", str(2**63)], INTEGER, f"'{2**63}' in row 1"),
        (["-1"], pa.uint64(), "'-1' in row 0"),
        (["0.5", str(2**53 + 1)], DOUBLE, f"'{2**53 + 1}' in row 1"),
        (["0.5", "x"], DOUBLE, "'x' in row 1"),
    ],
)
def test_what_does_not_fit_is_told_with_its_row(values: list[str], type_: pa.DataType, told: str) -> None:
    with pytest.raises(InputError, match=f"WA-1067: {told} of the place does not fit {type_}"):
        as_type(text(*values), type_, "the place")


def test_what_fits_is_taken() -> None:
    assert as_type(text("7", None), DOUBLE, "there").to_pylist() == [7.0, None]
    assert as_type(text(str(2**64 - 1), "7"), pa.uint64(), "there").to_pylist() == [2**64 - 1, 7]
