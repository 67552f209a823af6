"""pandas DataFrames as Arrow tables and back, dtypes kept.

Index levels that have a name become columns, in front; others are dropped, and a result has the index 0, 1, 2, ... .
Whole numbers and booleans without a value (of a missing partner) get pandas' nullable dtypes, as `Int64`: floats, which
pandas' own merge makes of them, would lose digits above 2^53. Periods are read as their text: Arrow would have their
ordinals, in which a month can equal a day, and which could pass for microseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import pyarrow as pa


def read(frame: Any) -> tuple[pa.Table, list[Any]]:
    """The rows of a DataFrame, and the dtypes of the columns.

    Raises ValueError for column names that are no text or that an index level has too, and what pandas and Arrow raise.

    >>> import pandas as pd
    >>> read(pd.DataFrame({"v": [1.5]}, index=pd.Index(["a"], name="k")))[0].to_pydict()
    {'k': ['a'], 'v': [1.5]}
    """
    for name in frame.index.names:
        if name is not None and name in frame.columns:
            raise ValueError(f"{name!r} is a level of the index and a column: rename one, or reset_index(drop=True)")
    unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
    if len(unnamed) < frame.index.nlevels:
        frame = (frame.droplevel(unnamed) if unnamed else frame).reset_index()
    for name in frame.columns:
        if not isinstance(name, str):
            raise ValueError(
                f"the column name {name!r} is no text: frame.columns = frame.columns.map(str) makes it one"
            )
    dtypes = list(frame.dtypes)
    if any(hasattr(dtype, "freq") for dtype in dtypes):
        pd, frame = import_module("pandas"), frame.copy(deep=False)
        for at, dtype in enumerate(frame.dtypes):
            if isinstance(dtype, pd.PeriodDtype):
                dtypes[at] = _Periods.of(frame.iloc[:, at])
                frame.isetitem(at, dtypes[at].texts(pd, frame.iloc[:, at]))
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None), dtypes


class _Periods(NamedTuple):
    """What a column of periods is read as: text; and which period each text is."""

    dtype: Any
    by_text: dict[str, Any]

    @classmethod
    def of(cls, series: Any) -> _Periods:
        """The texts of a column's periods."""
        return cls(series.dtype, {str(each): each for each in series.dropna().unique()})

    def texts(self, pd: Any, series: Any) -> Any:
        """A column of periods as text."""
        codes, periods = series.factorize()
        return pd.Categorical.from_codes(codes, [str(each) for each in periods])

    def series(self, pd: Any, column: pa.ChunkedArray) -> Any:
        """Text as the periods that they are of."""
        codes, texts = pd.factorize(column.to_pandas(), use_na_sentinel=True)
        periods = pd.array([self.by_text[each] for each in texts], dtype=self.dtype)
        return pd.Series(periods.take(codes, allow_fill=True))


def give(table: pa.Table, dtypes: list[Any]) -> Any:
    """A table as a DataFrame; `dtypes` of its columns, None where pandas may choose.

    >>> give(pa.table({"id": [1, None], "t": [1, 2]}), [None, None]).dtypes.to_dict()
    {'id': Int64Dtype(), 't': dtype('int64')}
    """
    pd = import_module("pandas")
    columns = {
        name: _own(_series(pd, column, dtype), column)
        for name, column, dtype in zip(table.column_names, table.columns, dtypes, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def _own(series: Any, column: pa.ChunkedArray) -> Any:
    """The series in memory of its own. What pandas has without a copy of Arrow cannot be written to, and may be memory
    of an input, or of another column, which would change with it."""
    shared = column.num_chunks == 1 and not column.null_count and pa.types.is_primitive(column.type)
    return series.copy() if shared else series


def _series(pd: Any, column: pa.ChunkedArray, dtype: Any) -> Any:
    if isinstance(dtype, _Periods):
        return dtype.series(pd, column)
    if isinstance(dtype, pd.ArrowDtype):
        return pd.Series(pd.arrays.ArrowExtensionArray(column))
    if isinstance(dtype, pd.IntervalDtype) and column.null_count and dtype.subtype.kind in "iu":
        dtype = pd.IntervalDtype("float64", dtype.closed)  # pandas has no other with missing values
    if isinstance(dtype, pd.IntervalDtype):  # operations work on the storage of its Arrow type
        type_ = pa.array(pd.array([], dtype=dtype)).type
        storage = column.cast(type_.storage_type)
        column = pa.chunked_array([pa.ExtensionArray.from_storage(type_, chunk) for chunk in storage.chunks], type_)
    elif column.null_count and _is_whole(column.type) and not pd.api.types.is_extension_array_dtype(dtype):
        dtype = pd.api.types.pandas_dtype(_nullable(column.type))
    if hasattr(dtype, "__from_arrow__"):
        return pd.Series(dtype.__from_arrow__(column))
    series = column.to_pandas()
    return series if dtype is None or dtype == series.dtype else series.astype(dtype)


def _is_whole(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def _nullable(type_: pa.DataType) -> str:
    """The name of pandas' nullable dtype.

    >>> _nullable(pa.uint8()), _nullable(pa.int64()), _nullable(pa.bool_())
    ('UInt8', 'Int64', 'boolean')
    """
    return "boolean" if pa.types.is_boolean(type_) else str(type_).replace("u", "U").replace("i", "I")
