"""The Spark source: reads queues as streams and as batches."""

from ignis_source.batch import IgnisBatchReader
from ignis_source.stream import IgnisStreamReader

__all__ = ["IgnisBatchReader", "IgnisStreamReader"]
