"""The pipeline's transform: typed rows in, rows of the table out, checked against the contract.

pandas is only imported for pipelines that have a transform.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import Column, DeliveredTable
from etl_assets.errors import TransformFailed
from etl_assets.staging.casting import arrow_type, in_calendar
from etl_assets.staging.validating import RECORD


def apply_transform(contract: DeliveredTable, table: pa.Table, added: tuple[str, ...], shown: str) -> pa.Table:
    """Run the transform on an Arrow-backed frame and give back typed columns of the table, by the contract.

    The frame's index, named ``record``, numbers the records of the delivery; rows that keep it keep their line in
    error messages. Raises :class:`TransformFailed`.
    """
    import pandas as pd

    assert contract.transform is not None
    frame = table.drop_columns(RECORD).to_pandas(types_mapper=pd.ArrowDtype)
    frame.index = pd.Index(table[RECORD].to_numpy(), name="record")
    name = getattr(contract.transform.function, "__name__", "transform")
    try:
        result = contract.transform.function(frame)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise TransformFailed(
            f"{shown}: the transform {name} of {contract.name} raised {type(error).__name__}: {error}. "
            "The delivery is kept; mend the transform and run again"
        ) from error
    if not isinstance(result, pd.DataFrame):
        raise TransformFailed(f"{shown}: the transform {name} returned {type(result).__name__}, not a DataFrame")
    return _typed(contract, result, added, f"{shown}: the transform {name}")


def _typed(contract: DeliveredTable, frame: object, added: tuple[str, ...], who: str) -> pa.Table:
    import pandas as pd

    assert isinstance(frame, pd.DataFrame)
    columns = (*contract.columns, *(Column(name=n, type="text") for n in added if n in frame.columns))
    if not frame.columns.is_unique:
        raise TransformFailed(
            f"{who} returned a column twice: {sorted(map(str, frame.columns[frame.columns.duplicated()]))}"
        )
    unknown = [str(c) for c in frame.columns if c not in {k.name for k in (*columns, *contract.inputs)}]
    if unknown:
        raise TransformFailed(f"{who} returned columns that the contract does not have: {unknown}. Add them to it")
    arrays = []
    for column in columns:
        if column.name not in frame.columns:
            if not column.optional or column.name in contract.required_columns:
                raise TransformFailed(
                    f"{who} did not return the column {column.name!r}, which the contract has and does not call optional"
                )
            arrays.append(pa.nulls(len(frame), arrow_type(column)))
            continue
        try:
            arrays.append(_array(column, pa.array(frame[column.name], from_pandas=True)))
        except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:  # Arrow's errors among them
            raise TransformFailed(
                f"{who} returned {column.name!r} as something that is not {column.type}: {error}"
            ) from error
    known = frame.index.name == "record" and frame.index.is_unique and pd.api.types.is_integer_dtype(frame.index.dtype)
    records = pa.array(frame.index.to_numpy() if known else [None] * len(frame), pa.int64())
    names = [c.name for c in columns]
    return pa.table([*arrays, records], names=[*names, RECORD])


def _array(column: Column, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The values as the column's type, exactly, where their own type is of the same kind; or an error."""
    target = arrow_type(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if kind == target:
        typed = values
    elif not (pa.types.is_null(kind) or any(of_kind(kind) for of_kind in _KINDS[column.type])):
        raise pa.ArrowTypeError(f"{kind} is not converted")
    elif pa.types.is_timestamp(kind) and (kind.tz is None) is (column.type == "timestamp"):
        raise pa.ArrowInvalid("its timestamps have no time zone" if kind.tz is None else "an instant is no date")
    else:
        if column.type == "decimal" and pa.types.is_integer(kind):
            values = values.cast(pa.decimal128(20, 0))  # any 64 bits; straight to the target they would have to fit it
        typed = values.cast(target)
        if (
            column.type == "date"
            and pa.types.is_timestamp(kind)
            and not pc.all(pc.equal(typed.cast(kind), values)).as_py()
        ):
            raise pa.ArrowInvalid("its dates have a time of day")
    if column.type in ("date", "timestamp") and not in_calendar(typed):
        raise pa.ArrowInvalid("its years are not 1 to 9999")
    return typed


#: What a transform may return for a column; text is not parsed and numbers are not printed behind its back.
_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "json": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "integer": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "real": (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal),
    "decimal": (pa.types.is_decimal, pa.types.is_integer),
    "boolean": (),
    "date": (pa.types.is_date, pa.types.is_timestamp),
    "timestamp": (pa.types.is_timestamp,),
}
