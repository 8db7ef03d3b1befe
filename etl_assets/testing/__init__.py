"""For the tests of your own pipelines: a workbench to load deliveries on, and a proof that any order of them ends alike.

Needs no Dagster; the pytest fixture that brings an instance along is in ``etl_assets.orchestration.pytest_plugin``.
"""

from etl_assets.testing.deliveries import Deliveries
from etl_assets.testing.idempotence import assert_idempotent
from etl_assets.testing.workbench import Workbench

__all__ = ["Deliveries", "Workbench", "assert_idempotent"]
