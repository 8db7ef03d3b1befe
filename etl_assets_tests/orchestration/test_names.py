"""Names that the contract takes are those that the installed Dagster takes, so that no pipeline keeps the others from loading."""

import dagster as dg
import pytest

from etl_assets.contract import ReferenceTable, Static, text
from etl_assets.contract.naming import RESERVED
from etl_assets.errors import ContractError
from etl_assets.orchestration import Rooms, build_defs

ROOMS = Rooms(landing="landing", staged="staged", warehouse="w.sqlite")


def loads(**fields: object) -> bool:
    """Whether Dagster loads an asset of this group and these owners."""
    try:
        dg.Definitions.validate_loadable(dg.Definitions(assets=[dg.AssetSpec("a", **fields)]))
    except Exception:
        return False
    return True


def holds(**fields: object) -> bool:
    """Whether the contract takes them."""
    try:
        ReferenceTable(**{"name": "one", "landing": "one/*", "columns": [text("code")], "key": ["code"], **fields})
    except ContractError:
        return False
    return True


@pytest.mark.parametrize(
    "group", ["a", "A_1", "a/b", "a/b/c", "nyc-taxi", "a b", "/a", "a/", "a//b", "é", "a.b", "a\n", "input", "class"]
)
def test_a_group_is_taken_by_the_contract_only_where_dagster_takes_it(group: str) -> None:
    assert holds(group=group) <= loads(group_name=group)
    assert holds(group=group) or group == "a\n" or not loads(group_name=group)


@pytest.mark.parametrize(
    "owner", ["a@b.example", "first.last+x@sub.example.org", "team:x", "team:", "me", "a@b", "@b.example", "", "team"]
)
def test_an_owner_is_taken_by_the_contract_only_where_dagster_takes_it(owner: str) -> None:
    assert holds(owners=(owner,)) == loads(owners=[owner])


@pytest.mark.parametrize("key", ["a,b", "a|b", "[a]", "a/b", "a...b", "a\nb", "a\tb", "a\vb", "a\x1bb", "é", "a b"])
def test_a_partition_key_is_taken_by_the_contract_only_where_dagster_takes_it(key: str) -> None:
    try:
        dg.StaticPartitionsDefinition([key])
    except dg.DagsterError:
        taken = False
    else:
        taken = True
    if taken:
        assert holds(partitions=Static(key))
    else:
        with pytest.raises(ContractError, match="cannot be a partition key"):
            Static(key)


@pytest.mark.parametrize("name", sorted(RESERVED - {"outbox"}))
def test_a_name_that_dagster_keeps_is_refused_by_the_contract(name: str) -> None:
    assert not holds(name=name)


def test_a_pipeline_of_any_other_name_loads_in_dagster() -> None:
    names = ["job", "op", "asset", "sensor", "inputs", "result", "List", "none", "load_job", "etl"]
    pipelines = [ReferenceTable(name=n, landing=f"{n}/*", columns=[text("code")], key=["code"]) for n in names]
    dg.Definitions.validate_loadable(build_defs(pipelines, ROOMS))
