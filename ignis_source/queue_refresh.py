"""The queues of a query, read again regularly, because their settings can change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ignis_source.handle import StoreHandle
from queue_core.errors import BadOption
from queue_core.model import QueueInfo


class Queues:
    """
    The result of *read*, at most *interval* seconds old. Other threads may read it.

    *read* gets its last result; at first, an empty list.
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
        """Read them again when the interval is over, and always while one of them is paused."""
        if self.paused or time.monotonic() - self._read_at >= self._interval:
            self.refresh()

    @property
    def paused(self) -> list[QueueInfo]:
        """The queues whose messages are not fired."""
        return [info for info in self.infos if not info.settings.concurrency]

    @property
    def running(self) -> list[QueueInfo]:
        """The queues that are not paused."""
        return [info for info in self.infos if info.settings.concurrency]

    @property
    def concurrency(self) -> int:
        """The most partitions of a batch by default."""
        return max([1, *(info.settings.concurrency for info in self.infos)])


def open_queues(store: StoreHandle, names: Sequence[str]) -> list[QueueInfo]:
    """Find queues by name; raises `NoSuchQueue`, or `BadOption` if their schemas differ."""
    infos = [store.queue(name) for name in names]
    for info in infos[1:]:
        if not info.schema.equals(infos[0].schema):
            raise BadOption(
                f"queues={','.join(names)}: {info.name!r} and {infos[0].name!r} have different "
                "columns; read them as two sources"
            )
    return infos


def with_columns_of(before: Sequence[QueueInfo], now: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the present queues, but with the columns with which the query began."""
    return [
        replace(info, schema=was.schema, schema_version=was.schema_version)
        for was, info in zip(before, now, strict=True)
    ]
