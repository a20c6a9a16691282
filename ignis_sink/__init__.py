"""The Spark sink: loads messages into queues, and settles fired messages."""

from ignis_sink.load import LoadBatchWriter, LoadStreamWriter
from ignis_sink.settle import SettleBatchWriter, SettleStreamWriter

__all__ = ["LoadBatchWriter", "LoadStreamWriter", "SettleBatchWriter", "SettleStreamWriter"]
