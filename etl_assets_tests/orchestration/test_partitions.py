"""Partition keys are the same in the contract and in Dagster."""

import datetime as dt

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context

from etl_assets.contract import Daily, Hourly, Monthly, Static, Weekly
from etl_assets.contract.partitions import Partitions
from etl_assets.orchestration import partitions_definition

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Adelaide", "America/Sao_Paulo")
NOW = dt.datetime(2019, 2, 14, 12, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "make",
    [
        lambda zone: Hourly(start="2018-01-01", end="2019-01-01", timezone=zone),
        lambda zone: Hourly(start="2018-10-20-05:00", timezone=zone),
        lambda zone: Daily(start="2018-01-15", end="2018-12-02", timezone=zone),
        lambda zone: Daily(start="2018-10-01", timezone=zone),
        lambda zone: Weekly(start="2018-01-01", timezone=zone),
        lambda zone: Weekly(start="2018-01-07", end="2018-05-06", timezone=zone),
        lambda zone: Monthly(start="2018-01-25", timezone=zone),
        lambda zone: Monthly(start="2018-01-01", end="2018-12-31", timezone=zone),
    ],
    ids=["hours-of-a-year", "hours", "days-to-end", "days", "weeks", "weeks-to-end", "months", "months-to-end"],
)
def test_time_partitions_have_the_same_keys_in_contract_and_dagster(make, zone: str) -> None:
    contract: Partitions = make(zone)
    with partition_loading_context(NOW):
        keys = partitions_definition(contract).get_partition_keys()
    assert list(contract.keys(NOW)) == list(keys)
    assert len(keys) > 3


def test_the_hour_that_clocks_repeat_has_a_key_of_its_own_in_both() -> None:
    contract = Hourly(start="2013-11-02-22:00", end="2013-11-03-04:00", timezone="America/New_York")
    keys = list(partitions_definition(contract).get_partition_keys())
    assert keys == list(contract.keys())
    assert keys[3:5] == ["2013-11-03-01:00", "2013-11-03-01:00-0500"]


def test_static_partitions_keep_their_names_and_order() -> None:
    contract = Static("west", "East coast", "Überlingen", "a.b")
    definition = partitions_definition(contract)
    assert isinstance(definition, dg.StaticPartitionsDefinition)
    assert list(definition.get_partition_keys()) == list(contract.keys())
