"""The pipeline's transform: typed rows in, rows of the table out, checked against the contract.

pandas is only imported for pipelines that have a transform.
"""

from __future__ import annotations

import pyarrow as pa

from etl_assets.contract import Column, Pipeline
from etl_assets.errors import TransformFailed
from etl_assets.staging.casting import arrow_type
from etl_assets.staging.validating import RECORD


def apply_transform(contract: Pipeline, table: pa.Table, added: tuple[str, ...], shown: str) -> pa.Table:
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
    except Exception as error:  # the user's code may raise anything
        raise TransformFailed(
            f"{shown}: the transform {name} of {contract.name} raised {type(error).__name__}: {error}. "
            "The delivery is kept; mend the transform and run again"
        ) from error
    if not isinstance(result, pd.DataFrame):
        raise TransformFailed(f"{shown}: the transform {name} returned {type(result).__name__}, not a DataFrame")
    return _typed(contract, result, added, f"{shown}: the transform {name}")


def _typed(contract: Pipeline, frame: object, added: tuple[str, ...], who: str) -> pa.Table:
    import pandas as pd

    assert isinstance(frame, pd.DataFrame)
    columns = (*contract.columns, *(Column(name=n, type="text") for n in added if n in frame.columns))
    if not frame.columns.is_unique:
        raise TransformFailed(f"{who} returned a column twice: {sorted(frame.columns[frame.columns.duplicated()])}")
    unknown = [str(c) for c in frame.columns if c not in {k.name for k in (*columns, *contract.inputs)}]
    if unknown:
        raise TransformFailed(f"{who} returned columns that the contract does not have: {unknown}. Add them to it")
    arrays = []
    for column in columns:
        if column.name not in frame.columns:
            if column.name in contract.required_columns:
                raise TransformFailed(f"{who} did not return the column {column.name!r}, which the contract requires")
            arrays.append(pa.nulls(len(frame), arrow_type(column)))
            continue
        try:
            arrays.append(_array(column, pa.array(frame[column.name], from_pandas=True)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise TransformFailed(
                f"{who} returned {column.name!r} as something that is not {column.type}: {error}"
            ) from error
    known = frame.index.name == "record" and frame.index.is_unique
    records = pa.array(frame.index.to_numpy() if known else [None] * len(frame), pa.int64())
    names = [c.name for c in columns]
    return pa.table([*arrays, records], names=[*names, RECORD])


def _array(column: Column, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    target = arrow_type(column)
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(values.type) and values.type.tz is None:
        raise pa.ArrowInvalid("its timestamps have no time zone")
    return values if values.type == target else values.cast(target)
