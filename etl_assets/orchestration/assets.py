"""A pipeline as Dagster assets: the landing, the extract and the table."""

from collections.abc import Iterator

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.orchestration.loading import Load, LoadConfig
from etl_assets.orchestration.metadata import column_schema
from etl_assets.orchestration.names import ACCEPTED, POOL, extract_key, landing_key, op_name, table_key
from etl_assets.orchestration.partitions import partitions_definition
from etl_assets.orchestration.resources import Rooms


def landing_asset(pipeline: Pipeline) -> dg.AssetSpec:
    """The file drop, which others fill: lineage starts here."""
    return dg.AssetSpec(
        landing_key(pipeline),
        description=f"Deliveries arrive as `{pipeline.landing}` below the landing. Dagster does not write here.",
        group_name=pipeline.group,
        owners=list(pipeline.owners),
        kinds={"file"},
        metadata={"pattern": pipeline.landing},
    )


def pipeline_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    """Extract and table of a pipeline, made by one op.

    One op, because freezing and publishing belong to one claim: the writer's generation is taken before a byte is
    read, and is checked at the commit. Two ops would be two processes, each with a claim of its own and a gap
    between them, in which a newer delivery could be read by one run and published over by another. Either asset can
    be selected alone: the extract alone is frozen and not published.
    """
    name = pipeline.name

    @dg.multi_asset(
        name=op_name(pipeline),
        specs=[_extract_spec(pipeline), _table_spec(pipeline)],
        check_specs=[
            dg.AssetCheckSpec(
                ACCEPTED,
                asset=extract_key(pipeline),
                description="The partition's newest delivery keeps the contract. If it does not, it is refused with "
                "its reason, and the partition keeps its rows.",
            )
        ],
        can_subset=True,
        pool=POOL,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=pipeline.max_partitions_per_run),
        description=f"Freeze the deliveries of {name} and publish each partition in a transaction of its own.",
    )
    def load(context: dg.AssetExecutionContext, config: LoadConfig, rooms: Rooms) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        yield from Load(context, pipeline, rooms).run(config)

    return load


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
        partitions_def=partitions_definition(pipeline.partitions),
        metadata={"dagster/column_schema": column_schema(pipeline)},
    )


def _table_spec(pipeline: Pipeline) -> dg.AssetSpec:
    key = ", ".join(pipeline.key) if pipeline.key else "none: a partition is a bag of rows"
    return dg.AssetSpec(
        table_key(pipeline),
        deps=[extract_key(pipeline)],
        description=pipeline.description,
        group_name=pipeline.group,
        owners=list(pipeline.owners),
        kinds={"sqlite", "table"},
        code_version=str(pipeline.transform_version),
        partitions_def=partitions_definition(pipeline.partitions),
        metadata={
            "dagster/table_name": pipeline.table,
            "dagster/column_schema": column_schema(pipeline),
            "key": key,
            "partitions": pipeline.partitions.describe(),
        },
    )
