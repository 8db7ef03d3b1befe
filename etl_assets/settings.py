"""Where the rooms are: landing, staged and warehouse, from options or the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

LANDING, STAGED, WAREHOUSE = "ETL_LANDING", "ETL_STAGED", "ETL_WAREHOUSE"


@dataclass(frozen=True, slots=True)
class Settings:
    """``landing`` is a folder or URL, ``staged`` a local folder, ``warehouse`` a path or ``sqlite:///path``."""

    landing: str = "data/landing"
    staged: str = "data/staged"
    warehouse: str = "data/warehouse.sqlite"

    @classmethod
    def from_environment(
        cls, landing: str | None = None, staged: str | None = None, warehouse: str | None = None
    ) -> Settings:
        """Options first, then ``ETL_LANDING``, ``ETL_STAGED`` and ``ETL_WAREHOUSE``, then ``data/``."""
        default = cls()
        return cls(
            landing or os.environ.get(LANDING) or default.landing,
            staged or os.environ.get(STAGED) or default.staged,
            warehouse or os.environ.get(WAREHOUSE) or default.warehouse,
        )
