"""The queues that a query is about, read again now and then: their settings can change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from queue_core.errors import BadOption
from queue_core.model import QueueInfo
from queue_core.store import Store


class Queues:
    """
    What *read* told at most *interval* seconds ago; safe for threads that only look.

    It is given what it told before, and at first nothing.
    """

    def __init__(
        self, read: Callable[[Sequence[QueueInfo]], list[QueueInfo]], interval: float
    ) -> None:
        self._read = read
        self._interval = interval
        self.infos: list[QueueInfo] = []
        self.refresh()

    def refresh(self) -> None:
        """Read them again."""
        self.infos = self._read(self.infos)
        self._read_at = time.monotonic()

    def refresh_if_due(self) -> None:
        """Read them again when it is time to, and at each look while one of them is paused."""
        if self.paused or time.monotonic() - self._read_at >= self._interval:
            self.refresh()

    @property
    def paused(self) -> list[QueueInfo]:
        """Those of which nothing is to be fired."""
        return [info for info in self.infos if not info.settings.concurrency]

    @property
    def running(self) -> list[QueueInfo]:
        """The others."""
        return [info for info in self.infos if info.settings.concurrency]

    @property
    def concurrency(self) -> int:
        """How many partitions a batch has at most, where nobody says otherwise."""
        return max([1, *(info.settings.concurrency for info in self.infos)])


def open_queues(store: Store, names: Sequence[str]) -> list[QueueInfo]:
    """The queues of those names; raises `NoSuchQueue`, or `BadOption` if their schemas differ."""
    infos = [store.queue(name).info for name in names]
    for info in infos[1:]:
        if not info.schema.equals(infos[0].schema):
            raise BadOption(
                f"queues={','.join(names)}: {info.name!r} and {infos[0].name!r} have different "
                "columns; read them as two sources"
            )
    return infos


def with_columns_of(before: Sequence[QueueInfo], now: Sequence[QueueInfo]) -> list[QueueInfo]:
    """The queues as they are now, but with the columns that they had: a query keeps its own."""
    return [
        replace(info, schema=was.schema, schema_version=was.schema_version)
        for was, info in zip(before, now, strict=True)
    ]
