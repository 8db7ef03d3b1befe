"""Extract to rows: the protocol of a destination, and one package a destination."""

from etl_assets.sink.protocol import Sink, open_sink
from etl_assets.sink.sqlite import SQLiteWarehouse

__all__ = ["SQLiteWarehouse", "Sink", "open_sink"]
