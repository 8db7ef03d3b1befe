"""Bring what Dagster shows in line with the ledger: report commits whose materialisation is missing.

A worker that dies after a commit and before its event, or a load from the command line, leaves a partition that is in
the ledger and not in the UI. The ledger is right; this job tells Dagster.
"""

from collections.abc import Sequence

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.model import Batch, Receipt
from etl_assets.orchestration import metadata
from etl_assets.orchestration.counting import count_rows
from etl_assets.orchestration.inflight import partitions_running
from etl_assets.orchestration.names import extract_key, in_order, made_keys, table_key
from etl_assets.orchestration.partitions import partition_tags
from etl_assets.orchestration.resources import Rooms
from etl_assets.sink import Sink, open_sink

RECONCILE_JOB = "reconcile_with_ledger"
PAGE = 500


def reconcile_job(pipelines: Sequence[Pipeline]) -> dg.JobDefinition:
    """One job for all pipelines; it writes events and never rows."""

    @dg.op(name="reconcile", description="Report committed partitions whose materialisation Dagster does not have.")
    def reconcile(context: dg.OpExecutionContext, rooms: Rooms) -> None:
        sink = open_sink(rooms.warehouse)
        for pipeline in pipelines:
            _reconcile(context, pipeline, sink)

    @dg.job(name=RECONCILE_JOB, description="Report commits of the ledger that Dagster was not told of.")
    def reconcile_with_ledger() -> None:
        reconcile()

    return reconcile_with_ledger


def _reconcile(context: dg.OpExecutionContext, pipeline: Pipeline, sink: Sink) -> None:
    current = sink.current(pipeline.name)
    running = partitions_running(context.instance, pipeline, pipeline.partitions.keys())
    shown = _shown_batches(context.instance, table_key(pipeline))
    left = running | (_half_loaded(sink, pipeline) if in_order(pipeline) else set())
    missing = [b for scope, b in sorted(current.items()) if scope not in left and shown.get(scope) != b.batch]
    rows = count_rows(sink, pipeline)
    for batch in missing:
        _report(context, pipeline, batch, metadata.table_metadata(pipeline, Receipt("already committed", batch), rows))
    beyond = sorted(shown.keys() - current.keys())
    context.log.info(f"{pipeline.name}: {len(current):,} partitions committed, {len(missing):,} reported to Dagster")
    if beyond:
        context.log.warning(
            f"{pipeline.name}: Dagster shows {len(beyond):,} partitions as materialised that are not in the ledger: "
            f"{', '.join(beyond[:10])}{', …' if len(beyond) > 10 else ''}. Was an older warehouse restored? Load them again"
        )


def _half_loaded(sink: Sink, pipeline: Pipeline) -> set[str]:
    """Scopes of which some is committed, and a later delivery, or the rest of one, is not: not to be made green."""
    halves = {scope for scope, batch in sink.current(pipeline.name).items() if batch.continues}
    committed = {(b.scope, b.delivery, b.revision) for b in sink.ledger(pipeline.name)}
    newest = {(r.delivery.scope, r.delivery.name): r for r in sink.deliveries(pipeline.name)}
    return halves | {
        d.scope
        for d, refusal in ((r.delivery, r.refusal) for r in newest.values())
        if refusal and (d.scope, d.name, d.revision) not in committed
    }


def _report(context: dg.OpExecutionContext, pipeline: Pipeline, batch: Batch, shown: metadata.Metadata) -> None:
    described = f"Reported from the ledger: {batch.batch}, committed at {batch.committed_at} by run {batch.run}"
    by_key = {extract_key(pipeline): metadata.committed_extract_metadata(batch), table_key(pipeline): shown}
    for key in made_keys(pipeline):
        context.log_event(
            dg.AssetMaterialization(
                key,
                description=described,
                partition=batch.scope,
                metadata=by_key[key],
                tags={"dagster/data_version": batch.digest} | partition_tags(pipeline.partitions, batch.scope),
            )
        )
    context.log.info(described)


def _shown_batches(instance: dg.DagsterInstance, table: dg.AssetKey) -> dict[str, str | None]:
    """For each partition that Dagster has as materialised, the batch of the newest materialisation."""
    newest = instance.get_latest_storage_id_by_partition(table, dg.DagsterEventType.ASSET_MATERIALIZATION)
    found: dict[str, str | None] = dict.fromkeys(newest)
    ids = sorted(newest.values())
    for start in range(0, len(ids), PAGE):
        wanted = dg.AssetRecordsFilter(table, storage_ids=ids[start : start + PAGE])
        for record in instance.fetch_materializations(wanted, limit=PAGE).records:
            materialization = record.asset_materialization
            if materialization and record.partition_key is not None:
                value = materialization.metadata.get("batch")
                found[record.partition_key] = str(value.value) if value else None
    return found
