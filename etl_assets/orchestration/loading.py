"""The op that loads partitions: the engine's outcomes told to Dagster, each only after its commit."""

from collections import Counter
from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.errors import EtlError, OperationalError, SinkBusy
from etl_assets.loading import Engine, Outcome, open_scopes, survey
from etl_assets.model import Restatement
from etl_assets.orchestration import metadata
from etl_assets.orchestration.counting import count_rows, data_versions
from etl_assets.orchestration.names import ACCEPTED, extract_key, in_order, op_name, table_key
from etl_assets.orchestration.outcomes import Outcomes, Shown
from etl_assets.orchestration.partitions import partition_tags
from etl_assets.settings import Settings

#: How Dagster marks an event with what it was made of.
DATA_VERSION_TAG, CODE_VERSION_TAG = "dagster/data_version", "dagster/code_version"
#: Further attempts within a run while another writer holds the warehouse; each has waited for its busy timeout already.
BUSY_RETRIES = 3
BUSY_PAUSE_SECONDS = 5


class LoadConfig(dg.Config):
    """How to load; the defaults are right unless a person decides otherwise."""

    restate: bool = Field(
        default=False,
        description="Publish on purpose what is superseded or already committed. Needs a reason. Executing such a run "
        "again does not restate a second time: launch a new one for that.",
    )
    skip_gap: bool = Field(
        default=False,
        description="Of a change log: give up the positions that are missing before the delivery. Needs a reason.",
    )
    reason: str = Field(default="", description="Why it is restated, or a gap given up; kept in the ledger.")
    delivery: str = Field(
        default="",
        description="Load this delivery instead of the newest: its name (2.csv), or name and revision (2.csv#1). "
        "Only for a run of one partition.",
    )

    def restatement(self, operation: str) -> Restatement | None:
        """Raises ``Failure`` where the reason and what it is for do not go together."""
        if (self.restate + self.skip_gap) != bool(self.reason.strip()):
            raise dg.Failure(
                "restate and reason go together: what is published on purpose against the order of deliveries has a "
                f"reason, and a reason is for a restatement (restate={self.restate}, reason={self.reason!r}). "
                "The same holds for skip_gap, and only one of the two is decided at a time. Nothing was changed",
                allow_retries=False,
            )
        decided = self.restate or self.skip_gap
        return Restatement(self.reason.strip(), operation, self.skip_gap) if decided else None


class Load:
    """One run of the op: what it was asked for, and what has become of it so far."""

    def __init__(self, context: dg.AssetExecutionContext, pipeline: Pipeline, rooms: Settings) -> None:
        self.context, self.pipeline, self.rooms = context, pipeline, rooms
        self.engine = Engine(rooms, pipeline)
        self.extract, self.table = extract_key(pipeline), table_key(pipeline)
        self.assets = [k for k in (self.extract, self.table) if k in context.selected_asset_keys]
        # Keys of two dimensions are of a class of their own, which is none of the core's business.
        self.outcomes = Outcomes(pipeline, ["".join(key) for key in context.partition_keys])
        self.passed_over: list[str] = []

    def run(self, config: LoadConfig) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        """Load all partitions, going on past refused ones; then succeed, or fail naming each that was refused."""
        scopes = self.outcomes.scopes
        if config.delivery and len(scopes) != 1:
            raise dg.Failure(
                f"delivery={config.delivery!r} names a file of one partition, and this run has {len(scopes)}: "
                "launch it for one partition. Nothing was changed",
                allow_retries=False,
            )
        run = self.context.run
        # The claim is this run's own, so that a run that is executed again can write after others have claimed;
        # the restatement belongs to the first of such a chain of runs, so that it is done once.
        restate = config.restatement(operation=run.root_run_id or run.run_id)
        try:
            if in_order(self.pipeline) and not config.delivery and not restate:
                self._look_ahead()
            for outcome in self.engine.load(
                self.outcomes.scopes,
                run.run_id,
                restate,
                config.delivery or None,
                publish=self.table in self.assets,
            ):
                self._tell(outcome)
        except SinkBusy as busy:
            if self.context.retry_number < BUSY_RETRIES:
                # What is committed answers `already committed` at the next attempt, and is materialised then.
                raise dg.RetryRequested(BUSY_RETRIES, BUSY_PAUSE_SECONDS) from busy
            raise self._cut_short(busy) from busy
        except EtlError as error:
            raise self._cut_short(error) from error
        except OSError as error:
            named = OperationalError(f"{error}. Check the path and its permissions; what is committed stays")
            raise self._cut_short(named) from error
        except BaseException:  # Dagster's terminate is one
            self._materialise()
            raise
        if self.outcomes.refused:
            self._materialise()
            raise self._refusals()
        yield from self._results()

    def _look_ahead(self) -> None:
        """Count the deliveries of each partition, and pass over partitions of a range that have none.

        A day without events, or without a snapshot, is nothing to fail for: what came before and after says all.
        """
        arrived = Counter(a.scope for a in self.engine.source.arrivals() if not a.arriving)
        scopes = list(self.outcomes.scopes)
        delivered = [s for s in scopes if arrived[s]]
        if delivered and len(delivered) < len(scopes):
            self.passed_over = [s for s in scopes if not arrived[s]]
            self.context.log.info(
                f"{len(self.passed_over):,} of {len(scopes):,} partitions have no delivery and are passed over: they stay "
                "as they are"
            )
            scopes = delivered
        self.outcomes = Outcomes(self.pipeline, scopes, arrived)

    def _tell(self, outcome: Outcome) -> None:
        """Log one outcome, and evaluate the check of its delivery."""
        place = self.outcomes.add(outcome)
        if outcome.error:
            self.context.log.error(f"{place}: refused ({outcome.error.kind}): {outcome.error}")
        else:
            counts = ", ".join(f"{k} {v:,}" for k, v in outcome.counts.as_dict().items() if v)
            self.context.log.info(f"{place}: {outcome.batch} {outcome.message}{f' ({counts})' if counts else ''}")
        # A refusal that is not remembered says nothing about the delivery: it is not there, or it is not its turn.
        # What is said of a delivery of several batches is said once.
        derived = isinstance(self.pipeline, DerivedTable)
        if not derived and outcome.final and (outcome.error is None or outcome.attempts):
            # Logged, not yielded: only so does each partition get its own evaluation, and no other one.
            self.context.log_event(_evaluation(self.pipeline, outcome))

    def _results(self) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        """Report what is committed: as results for one partition, and as events of their own for several.

        Of several partitions Dagster takes one data version for all, and turns all of them green.
        """
        shown = self._shown()
        if len(shown) == len(self.assets) and len(self.context.partition_keys) == 1:
            for one in shown:
                self.context.add_asset_metadata(one.metadata, asset_key=one.asset, partition_key=one.scope)
                yield dg.MaterializeResult(one.asset, data_version=dg.DataVersion(one.version))
            return
        nodes = [node.name for node in self.context.op_execution_context.job_def.nodes]
        whole = len(shown) == len(self.assets) * len(self.context.partition_keys)
        if whole and nodes != [op_name(self.pipeline)]:
            # Other steps of the run wait for results. The events that these make are followed by the right ones.
            for asset in self.assets:
                yield dg.MaterializeResult(asset)
        self._report(shown)

    def _materialise(self) -> None:
        """Report what is committed, where the op yields no results."""
        self._report(self._shown())

    def _report(self, shown: list[Shown]) -> None:
        for one in shown:
            tags = event_tags(self.pipeline, one.scope, one.version, self.pipeline.transform_version)
            self.context.log_event(
                dg.AssetMaterialization(one.asset, partition=one.scope, metadata=one.metadata, tags=tags)
            )

    def _shown(self) -> list[Shown]:
        """What there is to show. A warehouse that cannot be read any more takes away counts, not what was committed."""
        scopes = list(self.outcomes.scopes)
        try:
            rows = count_rows(self.engine.sink, self.pipeline)
            versions = data_versions(self.engine.sink, self.pipeline, scopes) if self.table in self.assets else {}
            waiting = open_scopes(self.pipeline, survey(self.rooms, self.pipeline)) if self._counts_all else set()
        except (EtlError, OSError) as error:
            self.context.log.warning(f"what was committed is shown without counts: {error}")
            rows, versions, waiting = None, {}, set()
        shown = list(self.outcomes.shown(self.assets, rows, versions))
        left = sorted({one.scope for one in shown if one.asset == self.table} & waiting)
        if left:
            self.context.log.warning(f"not shown as loaded, since other deliveries of theirs wait: {', '.join(left)}")
        return [one for one in shown if one.asset != self.table or one.scope not in waiting]

    @property
    def _counts_all(self) -> bool:
        """Whether a partition is loaded only with all of its deliveries."""
        return in_order(self.pipeline) and self.table in self.assets

    def _refusals(self) -> dg.Failure:
        refused = [(o.scope, o.error) for o in self.outcomes.refused if o.error]
        partitions = list(dict.fromkeys(o.scope for o in self.outcomes.refused))
        lines = [f"{scope}: {error.kind}: {error}" for scope, error in refused]
        return dg.Failure(
            f"{len(partitions)} of {len(self.outcomes.scopes)} partitions of {self.pipeline.name} were not loaded"
            f"{self._done()}\n" + "\n".join(lines),
            metadata={
                "refused": dg.MetadataValue.md(
                    metadata.markdown_table(
                        ("partition", "kind", "why"), [(scope, error.kind, str(error)) for scope, error in refused]
                    )
                ),
                "refused_partitions": partitions,
            },
            allow_retries=False,
        )

    def _cut_short(self, error: EtlError) -> dg.Failure:
        """The failure for what is not about a delivery: it ends the run, and what is committed stays."""
        self._materialise()
        left = self.outcomes.open_scopes
        return dg.Failure(
            f"{error.kind}: {error}\nNot tried any more: {', '.join(left)}{self._done()}",
            metadata={"kind": error.kind, "not_tried": left},
            allow_retries=False,
        )

    def _done(self) -> str:
        done = self.outcomes.done
        return f"; the other {len(done)} are {'committed' if self.table in self.assets else 'frozen'}" if done else ""


def event_tags(pipeline: Pipeline, scope: str, version: str, transform_version: int) -> dict[str, str]:
    """What Dagster reads from the event of a partition: its data version, that of its logic, and its dimensions."""
    versions = {DATA_VERSION_TAG: version, CODE_VERSION_TAG: str(transform_version)}
    return versions | partition_tags(pipeline.partitions, scope)


def _evaluation(pipeline: Pipeline, outcome: Outcome) -> dg.AssetCheckEvaluation:
    shown: metadata.Metadata = {"delivery": str(outcome.delivery)} if outcome.delivery else {}
    said = "accepted"
    if outcome.error:
        said = f"{outcome.error.kind}: {outcome.error}"
        shown |= {"kind": outcome.error.kind, "refused": f"{outcome.attempts} of {pipeline.attempts} times"}
    return dg.AssetCheckEvaluation(
        asset_key=extract_key(pipeline),
        check_name=ACCEPTED,
        passed=outcome.error is None,
        description=f"{outcome.scope}: {said}",
        partition=outcome.scope,
        metadata=shown,
    )
