"""The queues of a query, read again regularly, because their settings can change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ignis_source.options import SourceOptions
from queue_core.catalog import queues
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.queues import ended_error
from queue_core.errors import BadOption, IgnisError, SubscriptionDetached
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.names import SIDELINE_SUFFIX, listed

_log = logging.getLogger(__name__)


class Queues:
    """
    The result of *read*, at most *interval* seconds old. Other threads may read it.

    *read* gets its last result; at first, an empty list. *fires*: whether the query takes messages.
    """

    def __init__(
        self,
        read: Callable[[Sequence[QueueInfo]], list[QueueInfo]],
        interval: float,
        *,
        fires: bool = False,
    ) -> None:
        self._read = read
        self._interval = interval
        self._fires = fires
        #: The errors of queues that give no more messages, by id, in the order in which they ended.
        self._ended: dict[int, IgnisError] = {}
        self.infos: list[QueueInfo] = []
        self.refresh()

    def refresh(self, *, detached: bool = False) -> None:
        """Read the queues; with *detached*, detached subscriptions count as ended unless paused."""
        self.infos = self._read(self.infos)
        self._read_at = time.monotonic()
        # A subscription may be attached again.
        attached = {info.id for info in self.infos if not info.detached_at}
        self._ended = {
            queue_id: error
            for queue_id, error in self._ended.items()
            if queue_id not in attached or not isinstance(error, SubscriptionDetached)
        }
        new = {
            info.id: ended_error(info)
            for info in self.infos
            if info.is_dropped
            or (self._fires and info.deactivated_at is not None)
            or (detached and info.detached_at and not info.is_paused)
        }
        told = new.keys() - self._ended.keys()
        self._ended |= {queue_id: new[queue_id] for queue_id in told}
        for queue_id in told if len(self._ended) < len(self.infos) else ():
            _log.warning("%s. The query goes on with its other queues", new[queue_id])

    def refresh_if_due(self) -> None:
        """
        Read them again when the interval is over, and always while one of them is paused.

        Raises `QueueDeactivated` or `NoSuchQueue` when all of them have ended.
        """
        if self.paused or time.monotonic() - self._read_at >= self._interval:
            self.refresh()
        if self._ended and len(self._ended) == len(self.infos):
            raise [*self._ended.values()][-1]

    @property
    def paused(self) -> list[QueueInfo]:
        """The queues whose messages are not fired for now."""
        return [info for info in self.infos if info.is_paused and info.id not in self._ended]

    @property
    def running(self) -> list[QueueInfo]:
        """The queues whose messages are fired."""
        return [info for info in self.infos if not info.is_paused and info.id not in self._ended]

    @property
    def concurrency(self) -> int:
        """The most partitions of a batch by default."""
        return max([1, *(info.settings.concurrency for info in self.infos)])


def located(store: StoreHandle, options: SourceOptions) -> SourceOptions:
    """
    Return options in which the name of a sideline is replaced by its queue and the magazine.

    Raises `NoSuchQueue`, and `BadOption` if only some of the names are those of sidelines.
    """
    if not any(name.endswith(SIDELINE_SUFFIX) for name in options.queues) or options.reports:
        return options
    with store.catalog.read() as connection:
        found = [queues.find_magazine(connection, name) for name in options.queues]
    magazines = {magazine for _, magazine in found}
    if len(magazines) > 1:
        raise BadOption(
            f"queues={listed(options.queues)}: these are main of some queues and the sideline of "
            "others; read them as two sources"
        )
    magazine = options.magazine if magazines == {Magazine.MAIN} else Magazine.SIDELINE
    return options._replace(queues=tuple(info.name for info, _ in found), magazine=magazine)


def open_queues(store: StoreHandle, names: Sequence[str]) -> list[QueueInfo]:
    """Find queues by name; raises `NoSuchQueue`, or `BadOption` if their schemas differ."""
    infos = store.queues(names)
    for info in infos[1:]:
        if not info.schema.equals(infos[0].schema):
            raise BadOption(
                f"queues={listed(names)}: {info.name!r} and {infos[0].name!r} have different "
                "columns; give both the same with add_columns, or read them as two sources"
            )
    return infos


def with_columns_of(before: Sequence[QueueInfo], now: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the present queues, but with the columns with which the query began."""
    return [
        replace(info, schema=was.schema, schema_version=was.schema_version)
        for was, info in zip(before, now, strict=True)
    ]
