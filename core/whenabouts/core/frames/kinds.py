"""Any dataframe as an Arrow table, and an Arrow table as a dataframe of the same kind.

The local engine works on Arrow tables. Frames of other libraries become tables on their way in, and its results become
frames of the caller's library. A frame's class says which library it is from, so that none is imported that the user
has not imported already.

| frame | read by | the result |
| --- | --- | --- |
| pyarrow Table | as it is | a Table |
| pyarrow RecordBatch, RecordBatchReader, Dataset | pyarrow | the same; the Dataset is in memory |
| pandas DataFrame | `whenabouts.core.frames.pandas_frames` | a pandas DataFrame, dtypes kept |
| Polars DataFrame or LazyFrame | Arrow's C interface, without copies | a DataFrame or LazyFrame |
| DuckDB relation | Arrow's C interface | a relation on the same connection |
| one of Modin, cuDF, Dask, Ibis, or of Narwhals itself | Narwhals | the same, by Narwhals |
| another object with `__arrow_c_stream__` | Arrow's C interface | a pyarrow Table |
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain_type
from whenabouts.core.arrays.record_batches import one_batch
from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames import pandas_frames

A_FRAME = "give a dataframe of pyarrow, pandas, Polars or DuckDB, or an object with __arrow_c_stream__"


class Frame(ABC):  # noqa: B024  # for isinstance only
    """`isinstance(x, Frame)` says whether `arrow_table` can read `x`.

    >>> import pandas as pd
    >>> isinstance(pd.DataFrame(), Frame), isinstance(pd.Series(), Frame), isinstance("t.csv", Frame)
    (True, False, False)
    """

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return _kind_of(other) is not None


def arrow_table(name: str, frame: Any) -> pa.Table:
    """The rows of a frame; `name` is that of the input, for errors.

    Raises InputError WA-1062 for an object that is no frame, and WA-1068 for one whose rows cannot be read: a lazy
    frame whose computation fails, or a column for which Arrow has no type. Cost: none for libraries that keep columns
    as Arrow does; a copy for pandas; the computation of a lazy frame.

    >>> import polars as pl
    >>> arrow_table("left", pl.DataFrame({"t": [1, 2]})).num_rows
    2
    """
    return _read(name, frame).table


class GivenFrames:
    """The frames of a call, by the names of their inputs, read as `tables`.

    Raises InputError as `arrow_table`, and WA-1069 for frames of several libraries.

    >>> import pandas as pd
    >>> import polars as pl
    >>> GivenFrames({"left": pd.DataFrame({"t": [1]}), "right": pl.DataFrame({"t": [1]})})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    whenabouts.core.errors.InputError: WA-1069: the left input is a frame of pandas, the right input one of polars ...
    """

    def __init__(self, frames: Mapping[str, Any]) -> None:
        _check_libraries(frames)
        read: dict[int, Rows] = {}  # a reader that is given twice can be read once only
        for name, frame in frames.items():
            if id(frame) not in read:
                read[id(frame)] = _read(name, frame)
        self._rows = [read[id(frame)] for frame in frames.values()]
        self._model = next(iter(frames.values()))
        self.tables = [_labelled(i, rows) for i, rows in enumerate(self._rows)]

    def like_first(self, table: pa.Table) -> Any:
        """Rows made of these inputs, as a frame of the first one's kind; columns of an input have its types again.

        >>> import pandas as pd
        >>> inputs = GivenFrames({"left": pd.DataFrame({"k": pd.Categorical(["b"], categories=["b", "a"])})})
        >>> inputs.like_first(inputs.tables[0])["k"].dtype
        CategoricalDtype(categories=['b', 'a'], ordered=False, categories_dtype=object)
        """
        kind = _kind_of(type(self._model))
        if kind is None:  # it has been read
            raise AssertionError(self._model)
        schema = pa.schema([_unlabelled(field) for field in table.schema])
        unlabelled = pa.Table.from_arrays(table.columns, schema=schema)
        return kind.give(unlabelled, self._model, [self._type_of(field) for field in table.schema])

    def _type_of(self, field: pa.Field) -> Any:
        """The library's own type of the input column that a column is, if its Arrow type is the same still."""
        number, _, name = (field.metadata or {}).get(_COLUMN, b"").decode().partition(" ")
        if not name:
            return None
        rows = self._rows[int(number)]
        at = rows.table.column_names.index(name)
        return rows.types[at] if rows.types and plain_type(rows.table.schema.field(at).type) == field.type else None


class Rows(NamedTuple):
    """What was read of a frame: a table, and the types of its columns in the frame's library, if Arrow's lose any."""

    table: pa.Table
    types: list[Any]


class _Kind(NamedTuple):
    """A kind of frame: the library it is from, how it is read, and how a table becomes one like a given frame.

    `give` takes the table, the frame, and for each column the library's own type, or None if it has none.
    """

    library: str
    read: Callable[[Any], Rows]
    give: Callable[[pa.Table, Any, list[Any]], Any]


_COLUMN = b"whenabouts.column"
"""Metadata of a field: number of the input, and name there. Operations keep it."""


def _labelled(number: int, rows: Rows) -> pa.Table:
    if not rows.types:
        return rows.table
    fields = [
        field.with_metadata({**(field.metadata or {}), _COLUMN: f"{number} {field.name}".encode()})
        for field in rows.table.schema
    ]
    return pa.Table.from_arrays(rows.table.columns, schema=pa.schema(fields))


def _unlabelled(field: pa.Field) -> pa.Field:
    others = {key: value for key, value in (field.metadata or {}).items() if key != _COLUMN}
    return field.with_metadata(others or None)


def _check_libraries(frames: Mapping[str, Any]) -> None:
    libraries = {name: kind.library for name, frame in frames.items() if (kind := _kind_of(type(frame))) is not None}
    for name, library in libraries.items():
        first, other = next(iter(libraries.items()))
        if library != other:
            raise InputError(
                Code.MIXED_FRAMES,
                f"the {first} input is a frame of {other}, the {name} input one of {library}",
                f"convert one of them: the result is a frame of the first one's library ({other})",
            )


def _read(name: str, frame: Any) -> Rows:
    kind = _kind_of(type(frame))
    if kind is None:
        raise InputError(Code.NOT_AN_INPUT, f"the {name} input is an object of type {class_name(frame)}", A_FRAME)
    try:
        return kind.read(frame)
    except Exception as error:  # a library may raise anything while it computes its rows
        raise InputError(
            Code.UNREADABLE_FRAME,
            f"the {name} input, a {class_name(frame)}, cannot be read: {type(error).__name__}: {error}",
            "compute it before the call, or change the column that is named",
        ) from error


def _stream(frame: Any) -> Rows:
    return Rows(pa.RecordBatchReader.from_stream(frame).read_all(), [])


def _one_batch(table: pa.Table, _model: Any, _types: list[Any]) -> pa.RecordBatch:
    return one_batch(table)


def _pandas(frame: Any) -> Rows:
    return Rows(*pandas_frames.read(frame))


def _polars(frame: Any) -> Rows:
    collected = frame.collect() if hasattr(frame, "collect") else frame
    objects = [name for name, type_ in collected.schema.items() if type_ == import_module("polars").Object]
    if objects:
        raise TypeError(f"column {objects[0]!r} holds objects of Python, for which Arrow has no type")
    return Rows(collected.to_arrow(), collected.dtypes)


def _like_polars(table: pa.Table, model: Any, types: list[Any]) -> Any:
    pl = import_module("polars")
    frame = pl.from_arrow(table)
    own = {name: type_ for name, type_ in zip(table.column_names, types, strict=True) if type_ is not None}
    frame = frame.with_columns([pl.col(name).cast(type_) for name, type_ in own.items() if frame.schema[name] != type_])
    return frame.lazy() if isinstance(model, pl.LazyFrame) else frame


_OWN_OF_DUCKDB = ("UUID", "HUGEINT", "UHUGEINT", "BIT")
_ENUM = r"ENUM\((?:'(?:[^']|'')*'(?:, )?)*\)"
"""Types that Arrow does not have. Nested ones stay as Arrow has them: version 1.1 cannot cast to lists of enums."""


def _duckdb(frame: Any) -> Rows:
    columns = list(zip(frame.columns, map(str, frame.types), strict=True))
    if any(type_ == "BIT" for _, type_ in columns):  # Arrow would get DuckDB's own bytes of it
        frame = frame.project(", ".join(_cast(name, "VARCHAR" if type_ == "BIT" else None) for name, type_ in columns))
    # In version 1.1 `__arrow_c_stream__` is not as Arrow calls it.
    own = [type_ if type_ in _OWN_OF_DUCKDB or re.fullmatch(_ENUM, type_) else None for _, type_ in columns]
    return Rows(frame.to_arrow_table(), own)


def _like_duckdb(table: pa.Table, model: Any, types: list[Any]) -> Any:
    # A relation's connection is not public. Its `query` runs there, and finds this function's variable by its name,
    # unless the connection has a table of that name.
    rows_of_whenabouts = table
    try:
        found = model.query("_whenabouts_", "SELECT * FROM rows_of_whenabouts")
    except Exception as error:
        raise InputError(
            Code.UNREADABLE_FRAME,
            f"the result cannot become a relation of DuckDB: {type(error).__name__}: {error}",
            "SET python_enable_replacements=true, or give relation.to_arrow_table()",
        ) from error
    del rows_of_whenabouts
    wanted = [None if type_ == str(now) else type_ for type_, now in zip(types, found.types, strict=True)]
    if not any(wanted):
        return found
    return found.project(", ".join(map(_cast, found.columns, wanted)))


def _cast(column: str, type_: str | None) -> str:
    """A column of DuckDB as another type (None: as it is), under its name."""
    quoted = '"' + column.replace('"', '""') + '"'
    return quoted if type_ is None else f"CAST({quoted} AS {type_}) AS {quoted}"


def _by_narwhals(frame: Any) -> Rows:
    nw = import_module("narwhals")
    return Rows(nw.from_native(frame, pass_through=False).lazy().collect(backend="pyarrow").to_native(), [])


def _like_narwhals(table: pa.Table, model: Any, types: list[Any]) -> Any:
    nw = import_module("narwhals")
    known = nw.from_native(model)
    if isinstance(known, nw.LazyFrame):
        native = nw.from_native(table).lazy(backend=known.implementation).to_native()
    else:
        native = nw.DataFrame.from_arrow(table, backend=known.implementation).to_native()
    return nw.from_native(native) if known is model else native


_KINDS = {
    "pyarrow.lib.Table": _Kind("pyarrow", lambda frame: Rows(frame, []), lambda table, *_: table),
    "pyarrow.lib.RecordBatch": _Kind("pyarrow", lambda frame: Rows(pa.Table.from_batches([frame]), []), _one_batch),
    "pyarrow.lib.RecordBatchReader": _Kind(
        "pyarrow", lambda frame: Rows(frame.read_all(), []), lambda table, *_: table.to_reader()
    ),
    "pyarrow._dataset.Dataset": _Kind(
        "pyarrow",
        lambda frame: Rows(frame.to_table(), []),
        lambda table, *_: import_module("pyarrow.dataset").dataset(table),
    ),
    "pandas.DataFrame": _Kind("pandas", _pandas, lambda table, _, types: pandas_frames.give(table, types)),
    "polars.DataFrame": _Kind("polars", _polars, _like_polars),
    "polars.LazyFrame": _Kind("polars", _polars, _like_polars),
    "duckdb.DuckDBPyRelation": _Kind("duckdb", _duckdb, _like_duckdb),
}
"""By the package and the name of a class."""

_LIBRARIES = {name.partition(".")[0] for name in _KINDS}
"""Of these nothing else is a frame: their columns have `__arrow_c_stream__` too."""

_NARWHALS = ("modin", "cudf", "dask", "ibis", "narwhals")
_NARWHALS_CLASSES = ("DataFrame", "LazyFrame", "Table")


def _kind_of(class_: type) -> _Kind | None:
    for base in class_.__mro__:
        module, name = base.__module__, base.__qualname__
        library = module.partition(".")[0]
        found = _KINDS.get(f"{module}.{name}") or _KINDS.get(f"{library}.{name}")
        if found is not None:
            return found
        if library in _NARWHALS and name in _NARWHALS_CLASSES:
            return _Kind(library, _by_narwhals, _like_narwhals)
    if class_.__module__.partition(".")[0] in _LIBRARIES or not hasattr(class_, "__arrow_c_stream__"):
        return None
    return _Kind("pyarrow", _stream, lambda table, *_: table)


def is_dataset(frame: Any) -> bool:
    """Whether it is a Dataset of pyarrow. By its name: to import pyarrow.dataset imports pandas.

    >>> is_dataset(pa.table({}))
    False
    """
    return any((base.__module__, base.__name__) == ("pyarrow._dataset", "Dataset") for base in type(frame).__mro__)


def class_name(frame: Any) -> str:
    """The class of an object, as errors name it.

    >>> class_name([]), class_name(pa.table({}))
    ('list', 'pyarrow.lib.Table')
    """
    return f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
