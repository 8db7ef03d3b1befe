"""Where the rooms are, landing, staged and warehouse, and where messages go; from options or the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

LANDING, STAGED, WAREHOUSE, RELAY = "ETL_LANDING", "ETL_STAGED", "ETL_WAREHOUSE", "ETL_RELAY"


@dataclass(frozen=True, slots=True)
class Settings:
    """``landing`` is a folder or URL, ``staged`` a local folder, ``warehouse`` a path or ``sqlite:///path``.

    ``relay`` is where messages of the outbox are sent (``https://…``, ``kafka://host:port``); None lets them wait.
    """

    landing: str = "data/landing"
    staged: str = "data/staged"
    warehouse: str = "data/warehouse.sqlite"
    relay: str | None = None

    @classmethod
    def from_environment(
        cls,
        landing: str | None = None,
        staged: str | None = None,
        warehouse: str | None = None,
        relay: str | None = None,
    ) -> Settings:
        """Options first, then ``ETL_LANDING``, ``ETL_STAGED``, ``ETL_WAREHOUSE`` and ``ETL_RELAY``, then ``data/``."""
        default = cls()
        return cls(
            landing or os.environ.get(LANDING) or default.landing,
            staged or os.environ.get(STAGED) or default.staged,
            warehouse or os.environ.get(WAREHOUSE) or default.warehouse,
            relay or os.environ.get(RELAY) or None,
        )
