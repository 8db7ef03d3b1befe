"""Bring what Dagster shows in line with the ledger, and say where it cannot be.

A worker that dies after a commit and before its event, or a load from the command line, leaves a partition that is in
the ledger and not in the UI. The ledger is right; this job tells Dagster. What Dagster shows and the ledger does not have, as
after an older warehouse was restored, fails the job by name: Dagster has no way to take a single partition's green back.
"""

from collections.abc import Sequence

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.errors import EtlError
from etl_assets.loading import open_scopes, survey
from etl_assets.model import Batch, Receipt
from etl_assets.orchestration import metadata
from etl_assets.orchestration.counting import TableRows, count_rows, data_versions
from etl_assets.orchestration.inflight import Records
from etl_assets.orchestration.jobs import EXECUTOR
from etl_assets.orchestration.loading import event_tags
from etl_assets.orchestration.names import RECONCILE_JOB, extract_key, made_keys, shared, table_key
from etl_assets.settings import Settings
from etl_assets.sink import Sink, open_sink

PAGE = 500
#: Partitions that a message names; the rest are counted.
NAMED = 10


def reconcile_job(pipelines: Sequence[Pipeline], rooms: Settings, name: str | None) -> dg.JobDefinition:
    """One job for all pipelines; it writes events and never rows."""

    @dg.op(
        name=shared(name, "reconcile"),
        out=dg.Out(dg.Nothing),
        description="Report committed partitions whose materialisation Dagster lacks.",
    )
    def reconcile(context: dg.OpExecutionContext) -> None:
        troubles = []
        for pipeline in pipelines:
            try:
                troubles += _Reconciler(context, pipeline, rooms).reconcile()
            except (EtlError, OSError) as error:
                troubles.append(f"{pipeline.name}: cannot be reconciled: {type(error).__name__}: {error}")
        if troubles:
            raise dg.Failure("\n".join(troubles), allow_retries=False)

    @dg.job(
        name=shared(name, RECONCILE_JOB),
        executor_def=EXECUTOR,
        description="Report commits of the ledger that Dagster was not told of, and name what the ledger does not have.",
    )
    def reconcile_with_ledger() -> None:
        reconcile()

    return reconcile_with_ledger


class _Reconciler:
    """One pipeline beside the ledger."""

    def __init__(self, context: dg.OpExecutionContext, pipeline: Pipeline, rooms: Settings) -> None:
        self.context, self.pipeline, self.rooms = context, pipeline, rooms
        self.sink: Sink = open_sink(rooms.warehouse)

    def reconcile(self) -> list[str]:
        """Report what Dagster lacks; return what it shows and the ledger does not have, in words."""
        name, log = self.pipeline.name, self.context.log
        keys = self.pipeline.partitions.keys()
        current = self.sink.current(name)
        shown = _shown_batches(self.context.instance, table_key(self.pipeline))
        flying = Records(self.context.instance, None).running(self.pipeline, keys)
        lacking = {scope for scope, batch in current.items() if shown.get(scope) != batch.batch}
        # A run that is alive reports its own; one that has been in flight for long may have died, and its commits are shown.
        left = {scope for scope, flight in flying.items() if not flight.is_long}
        waiting = open_scopes(self.pipeline, survey(self.rooms, self.pipeline)) if lacking else set()
        missing = [current[scope] for scope in sorted(lacking - left - waiting)]
        if missing:
            rows, versions = count_rows(self.sink, self.pipeline), data_versions(self.sink, self.pipeline)
            for batch in missing:
                self._report(batch, rows, versions[batch.scope])
        log.info(f"{name}: {len(current):,} partitions committed, {len(missing):,} reported to Dagster")
        if lacking & left:
            log.warning(f"{name}: left to the run that is in flight: {_some(lacking & left)}")
        if lacking & waiting:
            log.warning(
                f"{name}: not shown as loaded, since deliveries of theirs wait or were refused: {_some(waiting)}"
            )
        for flight in {flight.id: flight for flight in flying.values() if flight.is_long}.values():
            log.warning(f"{name}: {flight.advice}. Until then its partitions are not asked for")
        beyond = shown.keys() - current.keys() - left
        if not beyond:
            return []
        return [
            f"{name}: Dagster shows {len(beyond):,} partitions as materialised that are not in the ledger: {_some(beyond)}. Was "
            "an older warehouse restored? Load them again; or, where their deliveries are gone, wipe the materialisations "
            f"of {name} in Dagster and run this job again, which reports all that is committed"
        ]

    def _report(self, batch: Batch, rows: TableRows, version: str) -> None:
        described = f"Reported from the ledger: {batch.batch}, committed at {batch.committed_at} by run {batch.run}"
        receipt = Receipt("already committed", batch)
        by_key = {
            extract_key(self.pipeline): metadata.committed_extract_metadata(batch),
            table_key(self.pipeline): metadata.table_metadata(self.pipeline, receipt, rows),
        }
        for key in made_keys(self.pipeline):
            self.context.log_event(
                dg.AssetMaterialization(
                    key,
                    description=described,
                    partition=batch.scope,
                    metadata=by_key[key],
                    tags=event_tags(self.pipeline, batch.scope, version, batch.transform_version),
                )
            )
        self.context.log.info(described)


def _some(scopes: set[str]) -> str:
    named = sorted(scopes)
    return f"{', '.join(named[:NAMED])}{', …' if len(named) > NAMED else ''}"


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
