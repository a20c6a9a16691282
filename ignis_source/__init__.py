"""
The Spark source: reads queues as streams and as batches.

This module imports nothing, because a query waits for imports when it starts.
"""

__all__: list[str] = []
