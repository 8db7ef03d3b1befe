"""Delivery to extract: read, type, validate, digest, freeze. Nothing here knows the warehouse or Dagster.

What reads deliveries is imported where it is needed: it brings Arrow along, and a run that finds nothing needs none.
"""

from etl_assets.staging.extract import StagedFolder, check_files

__all__ = ["StagedFolder", "check_files"]
