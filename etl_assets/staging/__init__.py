"""Delivery to extract: read, type, validate, digest, freeze. Nothing here knows the warehouse or Dagster."""

from etl_assets.staging.extract import StagedFolder, check_files
from etl_assets.staging.stage import stage

__all__ = ["StagedFolder", "check_files", "stage"]
