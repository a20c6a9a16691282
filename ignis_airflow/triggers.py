"""Triggers: `MessagesTrigger` reports messages that wait, and `EmptyTrigger` an empty queue.

An event takes no message and names none: the task of the DAG fires and settles the messages, as any
other consumer does, whatever Airflow loses or repeats. A trigger has no state that outlives its
process. A triggerer that starts, after `kill -9` or beside another one, reports again what waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from ignis_airflow.look import Arrivals, QueueLook
from queue_core.values.address import Address


class _OfQueue(BaseTrigger):
    """A trigger that waits for a queue; its arguments are those of `MessagesTrigger`."""

    def __init__(
        self,
        queue_name: str,
        path: str | None = None,
        catalog: str | None = None,
        storage: str | None = None,
    ) -> None:
        super().__init__()
        self.queue_name = queue_name
        self._place = {"path": path, "catalog": catalog, "storage": storage}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, with which the triggerer makes the trigger again."""
        given = {name: str(value) for name, value in self._place.items() if value is not None}
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {"queue_name": self.queue_name, **given}

    def _looks(
        self, wanted: Callable[[QueueLook], bool]
    ) -> AbstractContextManager[asyncio.Queue[QueueLook]]:
        # Not at the top: the process that reads DAGs looks at no queue.
        from ignis_airflow.watcher import looks

        return looks(Address.of(**self._place), self.queue_name, wanted)

    def _event(self, look: QueueLook) -> TriggerEvent:
        return TriggerEvent({"queue": self.queue_name, "waiting": look.waiting})


class MessagesTrigger(_OfQueue, BaseEventTrigger):
    """
    Reports that messages wait which a consumer could fire now.

    New messages are reported at once, and at most once a second. Messages that still wait a minute
    later are reported again, so none is forgotten if a DAG run fails, or leaves some of them. The
    payload of an event has the name of the queue, ``queue``, and ``waiting``: how many waited then.
    A queue that is paused or deactivated is not reported.

    Without an address, the environment variables of `Store.open` in the triggerer give it. An
    address that a DAG passes is written into Airflow's database.

    Args:
        queue_name: The name of the queue. It may be created later.
        path: Folder of an embedded store.
        catalog: Database URL of the catalog, with *storage*.
        storage: Folder or URI of the segment files.
    """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event whenever messages wait, without an end."""
        with self._looks(Arrivals()) as found:
            while True:
                yield self._event(await found.get())


class EmptyTrigger(_OfQueue):
    """
    Reports once that a queue is empty, for `QueueEmptySensor` while it is deferred.

    Its arguments are those of `MessagesTrigger`.
    """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event."""
        with self._looks(attrgetter("is_empty")) as found:
            yield self._event(await found.get())
