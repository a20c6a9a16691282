"""A batch that a worker handles."""

from __future__ import annotations

import pyarrow as pa

from queue_core.handlers.handler import HandlerRunner, settlement
from queue_core.pool.source import MessageSource


class Batch:
    """Messages of one source and the handler's calls for them; another thread can continue it."""

    def __init__(
        self, messages: pa.RecordBatch, source: MessageSource, runner: HandlerRunner
    ) -> None:
        self.source = source
        self.calls = runner.calls_for(messages)
        self._messages = messages
        self._handler = runner.handler

    def handle(self) -> None:
        """Make the remaining calls."""
        self.calls.run(self._handler)

    @property
    def settlement(self) -> pa.RecordBatch:
        """The outcomes of the messages as rows of `SETTLEMENT`, once all calls are made."""
        return settlement(self._messages, self.calls)
