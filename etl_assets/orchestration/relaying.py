"""Messages out of Dagster: the asset that relays what is due, its job, and the sensor that asks for it."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.errors import EtlError, RelayAtWork, RelayUnavailable
from etl_assets.orchestration.inflight import is_running
from etl_assets.orchestration.jobs import EXECUTOR, AssetJob
from etl_assets.orchestration.metadata import Metadata, markdown_table
from etl_assets.orchestration.names import OUTBOX, OUTBOX_POOL, RELAY_JOB, WAITING_SENSOR, shared, table_key
from etl_assets.orchestration.once import OnceNamed
from etl_assets.outbox import Attempt, deliver, open_relay
from etl_assets.settings import Settings
from etl_assets.sink import Sink, open_sink

INTERVAL_SECONDS = 30
#: Messages that a table of the metadata lists; all of them are in the outbox.
LISTED = 50


def outbox_key(name: str | None) -> dg.AssetKey:
    """The asset of all messages of a warehouse."""
    return dg.AssetKey(shared(name, OUTBOX))


def outbox_asset(pipelines: Sequence[Pipeline], rooms: Settings, name: str | None) -> dg.AssetsDefinition:
    """What was sent to others of the tables that have notifications."""
    key = outbox_key(name)

    @dg.asset(
        key=key,
        deps=[table_key(p) for p in pipelines if p.notifications],
        group_name="outbox",
        kinds={"sqlite"},
        pool=OUTBOX_POOL,
        description="Messages that publishing wrote, delivered: each topic in its order, each message under its idempotency "
        "key. What is not taken is tried again later, and parked for a person after the last attempt.",
    )
    def outbox(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        sink, attempts = open_sink(rooms.warehouse), []
        try:
            for attempt in _deliver(sink, rooms):
                attempts.append(attempt)
                tell = context.log.info if attempt.reason is None else context.log.warning
                tell(f"{attempt.message.topic}: {attempt.message.key}: {attempt.said}")
        except RelayAtWork as error:
            return dg.MaterializeResult(metadata=_shown(sink, attempts) | {"note": str(error)})
        except EtlError as error:
            context.log_event(dg.AssetMaterialization(key, metadata=_shown(sink, attempts)))
            raise dg.Failure(f"{error.kind}: {error}", allow_retries=False) from error
        parked = [a for a in attempts if a.status == "parked"]
        if parked:
            context.log_event(dg.AssetMaterialization(key, metadata=_shown(sink, attempts)))
            raise _failure(parked)
        return dg.MaterializeResult(metadata=_shown(sink, attempts))

    return OnceNamed.of(outbox)


def relay_job(name: str | None) -> AssetJob:
    """Deliver what is due."""
    return dg.define_asset_job(
        shared(name, RELAY_JOB),
        selection=dg.AssetSelection.assets(outbox_key(name)),
        executor_def=EXECUTOR,
        description="Deliver the messages that are due.",
    )


def waiting_sensor(job: AssetJob, rooms: Settings, name: str | None) -> dg.SensorDefinition:
    """Asks for a run when a message's turn has come. No run key: what is due is due until it is sent or parked."""

    @dg.sensor(
        name=shared(name, WAITING_SENSOR),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Asks for a run of the relay when messages are due and none is in flight.",
    )
    def outbox_waiting(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        said = _reason_to_wait(context.instance, rooms, outbox_key(name), job.name)
        return dg.SkipReason(said) if said else dg.SensorResult(run_requests=[dg.RunRequest()])

    return outbox_waiting


def _reason_to_wait(instance: dg.DagsterInstance, rooms: Settings, outbox: dg.AssetKey, job: str) -> str | None:
    sink = open_sink(rooms.warehouse)
    open_messages = _open(sink)
    if not sink.due(limit=1):
        return f"nothing is due: {open_messages}"
    if is_running(instance, outbox, job):
        return f"a run is in flight: {open_messages}"
    try:
        open_relay(rooms.relay).close()
    except RelayUnavailable as error:
        return f"{open_messages}; {error}"
    return None


def _deliver(sink: Sink, rooms: Settings) -> Iterator[Attempt]:
    with closing(open_relay(rooms.relay)) as relay:
        yield from deliver(sink, relay)


def _open(sink: Sink) -> str:
    counts = sink.message_counts("waiting", "parked").values()
    waiting, parked = (sum(of.get(status, 0) for of in counts) for status in ("waiting", "parked"))
    return f"{waiting:,} messages wait, {parked:,} are parked"


def _shown(sink: Sink, attempts: Sequence[Attempt]) -> Metadata:
    """What this run did, and what is in the outbox now."""
    done = [a.status for a in attempts]
    counts = sink.message_counts("waiting", "parked").values()
    metadata: Metadata = {
        "sent": done.count("sent"),
        "not_taken": sum(a.reason is not None for a in attempts),
        "waiting": sum(of.get("waiting", 0) for of in counts),
        "parked": sum(of.get("parked", 0) for of in counts),
    }
    if attempts:
        rows = [(a.message.topic, a.message.subject, a.status, a.reason or "") for a in attempts[:LISTED]]
        metadata["messages"] = dg.MetadataValue.md(
            f"**{len(attempts):,} messages tried**\n\n" + markdown_table(("topic", "subject", "status", "why"), rows)
        )
    if metadata["parked"]:
        parked = [(m.topic, m.subject, m.key, m.attempts, m.last_error or "") for m in sink.messages("parked", LISTED)]
        metadata["parked_messages"] = dg.MetadataValue.md(
            "`etl-assets outbox --release KEY` sends one again, `--discard KEY` gives it up.\n\n"
            + markdown_table(("topic", "subject", "key", "attempts", "last error"), parked)
        )
    return metadata


def _failure(parked: Sequence[Attempt]) -> dg.Failure:
    lines = [f"{a.message.topic}: {a.message.key}: {a.reason}" for a in parked]
    return dg.Failure(
        f"{len(parked)} messages were not taken after their last attempt, and are parked. Release them with `etl-assets outbox "
        "--release KEY` once the receiver takes them, or discard them\n" + "\n".join(lines),
        metadata={"parked": [a.message.key for a in parked]},
        allow_retries=False,
    )
