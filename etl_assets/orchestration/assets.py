"""A pipeline as Dagster assets: the landing, the extract and the table."""

import textwrap
from collections.abc import Iterator

import dagster as dg

from etl_assets.contract import DeliveredTable, DerivedTable, Pipeline, StaticPartitions
from etl_assets.orchestration.loading import Load, LoadConfig
from etl_assets.orchestration.metadata import column_schema
from etl_assets.orchestration.names import extract_key, in_order, landing_key, op_name, pool_name, table_key
from etl_assets.orchestration.partitions import partition_mapping, partitions_definition
from etl_assets.settings import Settings

#: How deliveries become rows, by what publishing one does.
PATTERNS = {
    "replace": "a delivery replaces its partition",
    "consume": "events are applied in the order of their positions",
    "merge": "snapshots are merged by the time of each row's last change",
}


def landing_asset(pipeline: DeliveredTable) -> dg.AssetSpec:
    """The file drop, which others fill: lineage starts here."""
    return dg.AssetSpec(
        landing_key(pipeline),
        description=f"Deliveries arrive as `{pipeline.landing}` below the landing. Dagster does not write here.",
        group_name=pipeline.group,
        owners=list(pipeline.owners),
        kinds={"file"},
        metadata={"pattern": pipeline.landing},
    )


def pipeline_assets(pipeline: Pipeline, rooms: Settings) -> dg.AssetsDefinition:
    """Extract and table of a pipeline, made by one op.

    One op, because freezing and publishing belong to one claim: the writer's generation is taken before a byte is
    read, and is checked at the commit. Two ops would be two processes, each with a claim of its own and a gap
    between them, in which a newer delivery could be read by one run and published over by another. Either asset can
    be selected alone: the extract alone is frozen and not published. What is computed is a table alone, whose lineage starts
    at the tables that it is computed of.

    A backfill is a single run: within it each partition is a transaction of its own, one that is refused stops no other, and
    events and snapshots keep their order. Of two runs the second may start first, and then finds a gap. Where the selected
    partitions are not contiguous, Dagster makes a run of each contiguous range.
    """
    name, derived = pipeline.name, isinstance(pipeline, DerivedTable)

    @dg.multi_asset(
        name=op_name(pipeline),
        specs=[_table_spec(pipeline)] if derived else [_extract_spec(pipeline), _table_spec(pipeline)],
        can_subset=True,
        pool=pool_name(pipeline),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=f"Compute partitions of {name} and publish each in a transaction of its own."
        if derived
        else f"Freeze the deliveries of {name} and publish each partition in a transaction of its own.",
    )
    def load(context: dg.AssetExecutionContext, config: LoadConfig) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        yield from Load(context, pipeline, rooms).run(config)

    return load


def _how(pipeline: Pipeline) -> dict[str, object]:
    """How the table's rows come about."""
    if isinstance(pipeline, DerivedTable):
        sql = textwrap.dedent(pipeline.sql).strip()
        return {"pattern": "SQL makes a partition of its upstream", "sql": dg.MetadataValue.md(f"```sql\n{sql}\n```")}
    return {"pattern": PATTERNS[pipeline.operation]}


def _partitions_in_words(pipeline: Pipeline) -> str:
    partitions = pipeline.partitions
    if isinstance(partitions, StaticPartitions) and len(partitions.names) == 1:
        return f"one, {partitions.names[0]}: the table is delivered whole"
    if in_order(pipeline):
        return f"{partitions.describe()}: when events or snapshots arrived, not where a row belongs"
    return partitions.describe()


def _extract_spec(pipeline: Pipeline) -> dg.AssetSpec:
    return dg.AssetSpec(
        extract_key(pipeline),
        deps=[landing_key(pipeline)],
        description=f"The delivery of each partition, frozen: its bytes, the rows for `{pipeline.table}`, and the "
        "rejected rows with line and reason. Never edited.",
        group_name=pipeline.group,
        owners=list(pipeline.owners),
        kinds={"parquet"},
        code_version=str(pipeline.transform_version),
        skippable=True,  # a run of several partitions yields no result, see `loading`
        partitions_def=partitions_definition(pipeline.partitions),
        metadata={"dagster/column_schema": column_schema(pipeline)},
    )


def _upstream(pipeline: Pipeline) -> list[dg.AssetDep]:
    """What a table is made of: its extract, or the tables that it is computed of."""
    if not isinstance(pipeline, DerivedTable):
        return [dg.AssetDep(extract_key(pipeline))]
    return [
        dg.AssetDep(dg.AssetKey(one.pipeline), partition_mapping=partition_mapping(pipeline, one))
        for one in pipeline.upstream
    ]


def _table_spec(pipeline: Pipeline) -> dg.AssetSpec:
    key = ", ".join(pipeline.key) if pipeline.key else "none: a partition is a bag of rows"
    return dg.AssetSpec(
        table_key(pipeline),
        deps=_upstream(pipeline),
        description=pipeline.description,
        group_name=pipeline.group,
        owners=list(pipeline.owners),
        kinds={"sqlite", "table"},
        code_version=str(pipeline.transform_version),
        skippable=True,  # a run of several partitions yields no result, see `loading`
        partitions_def=partitions_definition(pipeline.partitions),
        metadata={
            "dagster/table_name": pipeline.table,
            "dagster/column_schema": column_schema(pipeline),
            "key": key,
            "partitions": _partitions_in_words(pipeline),
            **_how(pipeline),
        },
    )
