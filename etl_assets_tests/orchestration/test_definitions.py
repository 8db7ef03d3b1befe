"""What this project gives to Dagster: it loads, and its names are the ones that documents and people use."""

import warnings

import dagster as dg
import pytest

from etl_assets.definitions import defs as project
from etl_assets.errors import ContractError
from etl_assets.orchestration import Rooms, build_defs
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.frequencies import frequencies
from etl_assets.pipelines.quakes import quakes
from etl_assets.pipelines.weather import weather
from etl_assets_tests.world import World, orders


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return build_defs([flights, weather], Rooms(landing="landing", staged="staged", warehouse="w.sqlite"))


def test_the_projects_definitions_load_with_every_warning_an_error() -> None:
    dg.Definitions.validate_loadable(project)
    graph = project.resolve_asset_graph()
    groups = {k.to_user_string(): graph.get(k).group_name for k in graph.get_all_asset_keys()}
    assert {k: v for k, v in groups.items() if not k.endswith(("_landing", "_extract"))} == {
        "airlines": "reference",
        "countries": "reference",
        "departures_by_day": "nyc",
        "flights": "nyc",
        "frequencies": "airports",
        "outbox": "outbox",
        "quakes": "quakes",
        "weather": "nyc",
    }


def test_each_pipeline_is_a_landing_an_extract_and_a_table_in_that_lineage(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    lineage = {
        k.to_user_string(): sorted(p.to_user_string() for p in graph.get(k).parent_keys)
        for k in graph.get_all_asset_keys()
    }
    assert lineage == {
        "flights_landing": [],
        "flights_extract": ["flights_landing"],
        "flights": ["flights_extract"],
        "weather_landing": [],
        "weather_extract": ["weather_landing"],
        "weather": ["weather_extract"],
        "outbox": ["flights"],
    }
    assert {k.to_user_string() for k in graph.external_asset_keys} == {"flights_landing", "weather_landing"}
    assert graph.get(dg.AssetKey("flights")).group_name == "nyc"


def test_jobs_sensors_schedules_and_checks_have_their_names_and_are_stopped(defs: dg.Definitions) -> None:
    repository = defs.get_repository_def()
    assert sorted(j.name for j in repository.get_all_jobs() if not j.name.startswith("__")) == [
        "check_ledger",
        "flights_job",
        "reconcile_with_ledger",
        "relay_outbox",
        "weather_job",
    ]
    assert sorted((s.name, s.default_status.value) for s in repository.sensor_defs) == [
        ("deliveries", "STOPPED"),
        ("failed_runs", "STOPPED"),
        ("outbox_waiting", "STOPPED"),
    ]
    assert sorted((s.name, s.default_status.value) for s in repository.schedule_defs) == [
        ("check_ledger_daily", "STOPPED"),
        ("flights_catch_up", "STOPPED"),
        ("reconcile_hourly", "STOPPED"),
        ("weather_catch_up", "STOPPED"),
    ]
    checks = defs.resolve_asset_graph().asset_check_keys
    assert sorted(
        (k.asset_key.to_user_string(), k.name) for k in checks if "flights" in k.asset_key.to_user_string()
    ) == [
        ("flights", "ledger_matches_rows"),
        ("flights", "newest_partition_loaded"),
        ("flights", "nothing_waits"),
        ("flights_extract", "delivery_accepted"),
    ]


@pytest.mark.parametrize("job", ["flights_job", "__ASSET_JOB", "check_ledger", "reconcile_with_ledger", "relay_outbox"])
def test_runs_execute_in_their_own_process_without_one_more_for_each_step(job: str) -> None:
    assert project.resolve_job_def(job).executor_def.name == "in_process"


def test_a_backfill_of_contiguous_partitions_is_one_run() -> None:
    graph = project.resolve_asset_graph()
    for name in ("flights", "flights_extract", "departures_by_day", "frequencies", "quakes_extract"):
        assert graph.get(dg.AssetKey(name)).backfill_policy == dg.BackfillPolicy.single_run()


def test_logs_and_snapshots_have_the_columns_and_the_checks_that_make_sense_for_them() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        defs = build_defs([frequencies, quakes], Rooms(landing="landing", staged="staged", warehouse="w.sqlite"))
        dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    spec = graph.get(dg.AssetKey("frequencies"))
    columns = {c.name: c for c in spec.metadata["dagster/column_schema"].columns}
    assert (columns["frequency_mhz"].type, columns["frequency_mhz"].constraints.other) == (
        "decimal(12,4)",
        ["unit: MHz"],
    )
    assert (columns["id"].constraints.nullable, columns["id"].constraints.unique) == (False, True)
    assert spec.metadata["pattern"] == "events are applied in the order of their positions"
    assert (
        graph.get(dg.AssetKey("quakes")).metadata["pattern"]
        == "snapshots are merged by the time of each row's last change"
    )
    assert sorted((k.asset_key.to_user_string(), k.name) for k in graph.asset_check_keys) == [
        (f"{name}{asset}", check)
        for name in ("frequencies", "quakes")
        for asset, check in (
            ("", "ledger_matches_rows"),
            ("", "nothing_waits"),
            ("_extract", "delivery_accepted"),
        )
    ]


def test_a_table_says_its_columns_with_types_units_and_key(defs: dg.Definitions) -> None:
    spec = defs.resolve_asset_graph().get(dg.AssetKey("weather"))
    columns = {c.name: c for c in spec.metadata["dagster/column_schema"].columns}
    assert (columns["temp"].type, columns["temp"].constraints.other) == ("real", ["unit: °F"])
    assert (columns["origin"].constraints.nullable, columns["origin"].constraints.other) == (False, ["key"])
    assert columns["time_hour"].description == "Hour of observation, UTC"
    assert spec.metadata["dagster/table_name"] == "weather"


def test_another_project_merges_the_definitions_with_its_own(world: World) -> None:
    @dg.asset
    def theirs() -> None: ...

    ours = build_defs([orders()], Rooms(landing=str(world.landing), staged="staged", warehouse="w.sqlite"))
    merged = dg.Definitions.merge(dg.Definitions(assets=[theirs]), ours)
    dg.Definitions.validate_loadable(merged)
    assert {"theirs", "outbox", "orders", "orders_extract", "orders_landing"} == {
        k.to_user_string() for k in merged.resolve_asset_graph().get_all_asset_keys()
    }


def test_definitions_merge_beside_a_projects_own_executor_and_resources(world: World) -> None:
    theirs = dg.Definitions(
        executor=dg.multiprocess_executor, resources={"rooms": "theirs", "io_manager": dg.mem_io_manager}
    )
    merged = dg.Definitions.merge(theirs, build_defs([orders()], world.settings))
    dg.Definitions.validate_loadable(merged)
    for job in ("orders_job", "check_ledger", "reconcile_with_ledger", "relay_outbox"):
        assert merged.resolve_job_def(job).executor_def.name == "in_process"
    assert merged.resolve_job_def("__ASSET_JOB").executor_def.name == "multiprocess"


def test_a_project_has_several_definitions_under_names_of_their_own(world: World) -> None:
    elsewhere = Rooms(landing=str(world.landing), staged="elsewhere", warehouse="elsewhere.sqlite")
    merged = dg.Definitions.merge(
        build_defs([orders()], world.settings), build_defs([flights, weather], elsewhere, name="nyc")
    )
    dg.Definitions.validate_loadable(merged)
    repository = merged.get_repository_def()
    assert sorted(s.name for s in repository.sensor_defs) == sorted(
        f"{name}{sensor}" for name in ("", "nyc_") for sensor in ("deliveries", "failed_runs", "outbox_waiting")
    )
    assert {"outbox", "nyc_outbox"} <= {k.to_user_string() for k in merged.resolve_asset_graph().get_all_asset_keys()}
    for job in ("check_ledger", "nyc_check_ledger", "nyc_reconcile_with_ledger", "nyc_relay_outbox"):
        assert merged.resolve_job_def(job).executor_def.name == "in_process"
    with pytest.raises(ContractError, match="name: 'not a name'"):
        build_defs([orders()], world.settings, name="not a name")


@pytest.mark.parametrize("name", [None, "nyc"])
def test_two_calls_of_one_name_are_refused_in_our_own_words(world: World, name: str | None) -> None:
    theirs = dg.Definitions(executor=dg.multiprocess_executor, resources={"rooms": "theirs"})
    first, second = build_defs([orders()], world.settings, name), build_defs([weather], world.settings, name)
    with pytest.raises(ContractError, match=r"build_defs: two calls in one project .* name of its own"):
        dg.Definitions.validate_loadable(dg.Definitions.merge(first, theirs, second))
    # Each loads alone, as often as one likes, and twice the same one is one.
    for defs in (
        first,
        second,
        first,
        dg.Definitions.merge(theirs, first, first),
        build_defs([orders()], world.settings),
    ):
        dg.Definitions.validate_loadable(dg.Definitions.merge(defs))


@pytest.mark.parametrize(
    "names, said",
    [(("orders", "orders"), "two pipelines are named 'orders'"), (("orders", "orders_extract"), "rename one")],
)
def test_names_that_clash_within_a_call_are_refused(world: World, names: tuple[str, str], said: str) -> None:
    pipelines = [orders(name=name, table=f"{name}_{number}") for number, name in enumerate(names)]
    with pytest.raises(ContractError, match=f"build_defs: .*{said}"):
        build_defs(pipelines, world.settings)


def test_a_key_that_is_unique_in_its_partition_is_not_called_unique() -> None:
    table = build_defs([orders(key_unique_in="partition", key=["id"])], Rooms("landing", "staged", "w.sqlite"))
    columns = table.resolve_asset_graph().get(dg.AssetKey("orders")).metadata["dagster/column_schema"].columns
    key = next(c for c in columns if c.name == "id").constraints
    assert (key.unique, key.other) == (False, ["key, unique in its partition"])
