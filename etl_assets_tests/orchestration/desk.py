"""A Dagster instance beside a small world, and what a person does at its UI: launch, look at events, wait for ticks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.orchestration import Rooms, build_defs
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets.orchestration.names import DELIVERIES, job_name, op_name, schedule_name
from etl_assets_tests.world import World


class Desk:
    """One pipeline of a world in a Dagster instance, and perhaps others ``beside`` it in the same definitions."""

    def __init__(
        self,
        world: World,
        instance: dg.DagsterInstance,
        pipeline: Pipeline | None = None,
        beside: Sequence[Pipeline] = (),
    ) -> None:
        self.world, self.instance = world, instance
        self.pipeline = pipeline or world.pipeline
        places = world.settings
        self.rooms = Rooms(landing=places.landing, staged=places.staged, warehouse=places.warehouse, relay=places.relay)
        self.defs = build_defs([self.pipeline, *beside], self.rooms)

    def config(self, **values: Any) -> dict[str, Any]:
        return {"ops": {op_name(self.pipeline): {"config": values}}}

    def launch(self, *scopes: str, tags: Mapping[str, str] | None = None, **config: Any) -> dg.ExecuteInProcessResult:
        """Run the pipeline's job for one partition, or for a range from the first to the last one."""
        partition = scopes[0] if len(scopes) == 1 else None
        span = {} if partition else {RANGE_START_TAG: scopes[0], RANGE_END_TAG: scopes[-1]}
        return self.defs.resolve_job_def(job_name(self.pipeline)).execute_in_process(
            instance=self.instance,
            partition_key=partition,
            tags={**span, **(tags or {})},
            run_config=self.config(**config) if config else {},
            raise_on_error=False,
        )

    def select(self, *assets: str, partition: str) -> dg.ExecuteInProcessResult:
        """Materialise a selection of assets, as from the asset page."""
        job = self.defs.resolve_job_def(job_name(self.pipeline))
        return job.execute_in_process(
            instance=self.instance,
            partition_key=partition,
            asset_selection=[dg.AssetKey(a) for a in assets],
            raise_on_error=False,
        )

    def job(self, name: str) -> dg.ExecuteInProcessResult:
        return self.defs.resolve_job_def(name).execute_in_process(instance=self.instance, raise_on_error=False)

    def tick(self, cursor: str | None = None, sensor: str | None = None) -> dg.SensorResult | Any:
        """One evaluation of the sensor on deliveries, or of another one."""
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, definitions=self.defs) as context:
            return self.defs.resolve_sensor_def(sensor or DELIVERIES).evaluate_tick(context)

    def scheduled(self, home: Path) -> Any:
        """One evaluation of the schedule, which Dagster only makes with an instance that lies on disk."""
        schedule = next(s for s in self.defs.schedules or () if s.name == schedule_name(self.pipeline))
        with (
            dg.DagsterInstance.local_temp(str(home)) as instance,
            dg.build_schedule_context(
                instance=instance,
                repository_def=self.defs.get_repository_def(),
            ) as context,
        ):
            return schedule.evaluate_tick(context)

    def carry_out(self, tick: Any) -> list[dg.ExecuteInProcessResult]:
        """Run what a tick asked for."""
        results = []
        for request in tick.run_requests:
            tags = {**request.tags, "dagster/run_key": request.run_key}
            span = [request.partition_key] if request.partition_key else [tags[RANGE_START_TAG], tags[RANGE_END_TAG]]
            results.append(self.launch(*span, tags=tags))
        return results

    # ------------------------------------------------------------------ what the UI shows

    def status(self, asset: str) -> dict[str, str]:
        """Partitions with a colour in the UI: MATERIALIZED or FAILED."""
        key = dg.AssetKey(asset)
        definition = self.defs.resolve_asset_graph().get(key).partitions_def
        assert definition is not None
        found = self.instance.get_status_by_partition(key, definition.get_partition_keys(), definition)
        return {k: v.value for k, v in (found or {}).items() if v is not None}

    def materializations(self, asset: str) -> list[tuple[str | None, dict[str, Any]]]:
        """All materialisations, oldest first: partition and metadata values."""
        records = self.instance.fetch_materializations(dg.AssetKey(asset), limit=1000, ascending=True).records
        return [(r.partition_key, values(r.asset_materialization)) for r in records]

    def evaluations(self, run: str) -> list[tuple[str, str | None, bool]]:
        """Asset check evaluations of a run: check, partition, passed."""
        entries = (e.dagster_event for e in self.instance.all_logs(run))
        data = [e.asset_check_evaluation_data for e in entries if e and e.event_type_value == "ASSET_CHECK_EVALUATION"]
        return [(d.check_name, d.partition, d.passed) for d in data]

    def logged(self, run: str) -> str:
        return "\n".join(e.user_message for e in self.instance.all_logs(run) if not e.dagster_event)

    def failure(self, result: dg.ExecuteInProcessResult) -> str:
        """The description of the Failure with which the run's step ended."""
        assert not result.success
        for entry in self.instance.all_logs(result.run_id):
            event = entry.dagster_event
            if event and event.event_type_value == "STEP_FAILURE":
                shown = event.step_failure_data.user_failure_data
                assert shown is not None, event.step_failure_data.error
                assert shown.description is not None
                return shown.description
        raise AssertionError("no step failed")


def values(materialization: dg.AssetMaterialization | None) -> dict[str, Any]:
    assert materialization is not None
    return {k: v.value for k, v in materialization.metadata.items()}
