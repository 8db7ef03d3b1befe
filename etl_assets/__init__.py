"""Incremental, idempotent pipelines: rows, ledger entry and progress change in one transaction, or not at all."""

__version__ = "0.1.0"
