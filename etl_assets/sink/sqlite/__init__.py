"""The SQLite warehouse: rows, ledger and progress in one file and one transaction."""

from etl_assets.sink.sqlite.warehouse import SQLiteWarehouse

__all__ = ["SQLiteWarehouse"]
