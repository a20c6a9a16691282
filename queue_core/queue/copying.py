"""`Copying`: other queues with the messages of one, which copy none of them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from queue_core.catalog.records.acts import by_hand
from queue_core.queue.creating import clone, replay
from queue_core.queue.opened import OpenedQueue
from queue_core.support.interruption import shielded
from queue_core.values.model import Extent, QueueInfo

if TYPE_CHECKING:
    from queue_core.queue.queue import Queue


@shielded
class Copying:
    """Replays and clones of a queue."""

    opened: OpenedQueue

    def _of(self, info: QueueInfo) -> Queue:
        """Return another queue of the store."""
        raise NotImplementedError

    @overload
    def replay(self, to: str, *, dry_run: Literal[False] = ..., **how: Any) -> Queue: ...
    @overload
    def replay(self, to: str, *, dry_run: bool, **how: Any) -> Queue | Extent: ...
    @by_hand
    def replay(
        self,
        to: str,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        selector: str | None = None,
        dry_run: bool = False,
        **settings: Any,
    ) -> Queue | Extent:
        """
        Play a part of the queue's log again, into a new queue of its own.

        The new queue is a subscription with an end. Its messages have the same ids, and their
        outcomes there change nothing here. They do not expire unless *settings* say so. No message
        is copied, so it takes as long for any number of them.

        Args:
            to: The name of the new queue.
            since: Which messages it gets: those that the log got at a time with its time zone or
                later, which is a little later than their ``_loaded_at``; by default, all that the
                log still has. Of loads that compaction has merged, it is exact to the minute. Or,
                as for `Store.subscribe`, the place of a subscription by its name: what it has
                taken in from the log, whether it has handled it or not.
            until: Only those that the log got before this time, or up to the place of a
                subscription. By default, until now.
            selector: Only messages that meet this SQL condition.
            dry_run: Whether to count the messages without creating the queue.
            **settings: As for `Store.subscribe`.

        Returns:
            The new queue; with *dry_run*, how many messages and bytes it would have, and how many
            of them have ``expired`` by the setting ``message_expiry`` of this queue. Without regard
            to *selector*.

        Raises:
            BadName: The name is not allowed.
            BadOption: The queue has no log, or an argument or a setting cannot be used.
            QueueExists: The store has a queue of that name.
            QueueDeactivated: The queue was deactivated.
            NoSuchQueue: The queue was dropped.
        """
        given = settings if selector is None else {**settings, "selector": selector}
        own = self.opened
        found = replay(own.catalog, own.info, to, since, until, given, dry_run=dry_run)
        return found if isinstance(found, Extent) else self._of(found)

    @overload
    def clone(self, to: str, *, dry_run: Literal[False] = ...) -> Queue: ...
    @overload
    def clone(self, to: str, *, dry_run: bool) -> Queue | Extent: ...
    @by_hand
    def clone(self, to: str, *, dry_run: bool = False) -> Queue | Extent:
        """
        Create another queue with the messages that wait in this one, to try something out.

        It has those of main and of the sideline, with the same ids, and the settings of this queue
        without those that concern loads. Nothing can be loaded into it, and its outcomes change
        nothing here. No message is copied: it has the same segments, so this queue cannot be
        dropped before it.

        Args:
            to: The name of the new queue.
            dry_run: Whether to count the messages without creating the queue.

        Returns:
            The new queue; with *dry_run*, how many messages and bytes it would have.

        Raises:
            BadName: The name is not allowed.
            QueueExists: The store has a queue of that name.
            QueueDeactivated: The queue was deactivated.
            NoSuchQueue: The queue was dropped.
        """
        found = clone(self.opened.catalog, self.opened.info, to, dry_run=dry_run)
        return found if isinstance(found, Extent) else self._of(found)
