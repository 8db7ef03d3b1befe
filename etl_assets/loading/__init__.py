"""A delivery's way through the rooms, landing, staging and sink: loading it, and telling how far it has come."""

from etl_assets.loading.engine import Engine
from etl_assets.loading.outcome import Outcome
from etl_assets.loading.sources import Source, open_source
from etl_assets.loading.survey import Status, Survey, open_scopes, survey

__all__ = ["Engine", "Outcome", "Source", "Status", "Survey", "open_scopes", "open_source", "survey"]
