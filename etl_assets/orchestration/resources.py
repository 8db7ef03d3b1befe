"""The rooms as a Dagster resource: places, and no connection (a sink opens one for each transaction)."""

import dataclasses

import dagster as dg
from pydantic import Field

from etl_assets.settings import RELAY, Settings

#: Under this name ops, sensors and schedules ask for the resource.
ROOMS = "rooms"


class Rooms(dg.ConfigurableResource):  # type: ignore[type-arg]  # it provides itself
    """Where deliveries arrive, where extracts are frozen, the warehouse, and where messages go."""

    landing: str = Field(description="Where deliveries arrive: a folder or URL (ETL_LANDING)")
    staged: str = Field(description="Where extracts are frozen: a local folder (ETL_STAGED)")
    warehouse: str = Field(description="The SQLite file with rows, ledger and progress (ETL_WAREHOUSE)")
    relay: str | None = Field(
        default=None,
        description="Where messages are sent: https://… or kafka://host:port (ETL_RELAY); unset, they wait",
    )

    @classmethod
    def from_environment(cls) -> "Rooms":
        """``ETL_LANDING``, ``ETL_STAGED`` and ``ETL_WAREHOUSE``, or the folders below ``data/``; and ``ETL_RELAY``."""
        settings = Settings.from_environment()
        places = dataclasses.asdict(settings)
        # Dagster shows a resource's values, and a variable by its name: a relay's URL may hold a password or a token.
        return cls(**places | {"relay": dg.EnvVar(RELAY) if settings.relay else None})

    @property
    def settings(self) -> Settings:
        return Settings(self.landing, self.staged, self.warehouse, self.relay)
