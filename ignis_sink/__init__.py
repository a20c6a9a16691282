"""The Spark sink: loads queues, and settles what was fired from them."""

from ignis_sink.load import LoadBatchWriter, LoadStreamWriter
from ignis_sink.settle import SettleBatchWriter, SettleStreamWriter

__all__ = ["LoadBatchWriter", "LoadStreamWriter", "SettleBatchWriter", "SettleStreamWriter"]
