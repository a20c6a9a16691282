"""
The Spark sink: loads messages into queues, and settles fired messages.

This module imports nothing, because a query waits for imports when it starts.
"""

__all__: list[str] = []
