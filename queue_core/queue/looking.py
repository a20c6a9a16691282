"""`Looking`: what a person sees of a queue, and does by hand with its messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from queue_core.catalog.records.acts import acting, by_hand
from queue_core.queue.creating import clone, replay
from queue_core.queue.opened import OpenedQueue
from queue_core.selection.request import Demand
from queue_core.selection.selection import condition_of
from queue_core.support.interruption import shielded
from queue_core.values.model import BY_SHARD, Extent, Magazine, QueueInfo
from queue_core.values.settings import check_count
from queue_core.verbs.browse import browse
from queue_core.verbs.peek import peek

if TYPE_CHECKING:
    from queue_core.queue.queue import Queue
    from queue_core.selection.selection import AnySelector
    from queue_core.verbs.operator.chosen import Chosen, Ids


@shielded
class Looking:
    """
    Messages that a person plays again, or looks at without taking them, chooses or edits.

    Replays and clones are other queues with the same messages; no message is copied.
    """

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
            since: Which messages it gets. With a time, which needs a time zone: those that entered
                the log then or later, a little after their ``_loaded_at``; for loads that
                compaction has merged, this is exact to the minute. With the name of a subscription,
                as for `Store.subscribe`: those that it has not taken in from the log, whatever it
                has handled. By default, all that the log still has.
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
        own = self.opened
        own.check_whole_queue("replay")
        given = settings if selector is None else {**settings, "selector": selector}
        # By its present selector and expiry: others may have changed them.
        found = replay(own.catalog, own.follow(), to, since, until, given, dry_run=dry_run)
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
        without ``late`` and those that concern loads. Nothing can be loaded into it, and its
        outcomes change nothing here. No message is copied: it has the same segments, so this queue,
        or the one whose log it reads, cannot be dropped before it.

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
        self.opened.check_whole_queue("clone")
        found = clone(self.opened.catalog, self.opened.info, to, dry_run=dry_run)
        return found if isinstance(found, Extent) else self._of(found)

    def peek(
        self,
        count: int = 10,
        *,
        selector: AnySelector | None = None,
        order_by: str | None = None,
        order: str = BY_SHARD,
        magazine: str = "main",
    ) -> pa.Table:
        """
        Return the messages that `fire` would take now with the same arguments, without taking them.

        Calls for other numbers of messages may begin at other shards. A limit of the whole queue
        counts only what is fired, so this ignores it. It also ignores a pause, a deactivation, and
        consumers that go first.

        Args:
            count: At most this many messages, 1 or more.
            selector: A SQL condition or a function, as in `fire`.
            order_by: The order in which messages are chosen, as in `fire`.
            order: The order without *order_by*, as in `fire`.
            magazine: ``main`` or ``sideline``.

        Returns:
            The queue's columns, then the metadata columns (`METADATA`).

        Raises:
            BadOption: An argument is out of range.
            BadSelector: *selector* or *order_by* cannot be understood, or the function failed.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; peek again.
        """
        demand = Demand(
            max_messages=check_count("count", count),
            magazine=self.opened.magazine(magazine),
            selector=selector,
            order_by=order_by,
            order=order,
        )
        queue = self.opened
        info = queue.follow()
        request = queue.request(demand, info)
        with queue.quarantining():
            plan = peek(queue.catalog, request)
        return queue.read(plan, selection=request.selection)

    def browse(self, *, selector: AnySelector | None = None, magazine: str = "main") -> pa.Table:
        """
        Return every message of a magazine, waiting or in flight, without taking any.

        Args:
            selector: Return only messages that meet this SQL condition or function, as in `fire`.
            magazine: ``main`` or ``sideline``.

        Returns:
            The queue's columns, then the metadata columns (`METADATA`). ``_fired_at`` is null for
            messages that were never fired or shovelled; those that wait again keep the time of
            their last firing or shovel.

        Raises:
            BadOption: *magazine* is unknown.
            BadSelector: *selector* cannot be understood, or the function failed.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; browse again.
        """
        queue = self.opened
        info = queue.follow()
        condition = None if selector is None else condition_of(selector, info.schema)
        plan = browse(queue.catalog, queue.storage.uri, [info], queue.magazine(magazine))
        messages = queue.read(plan)
        if condition is None:
            return messages
        # Not at the top: a query waits for imports.
        from queue_core.selection.scan import with_moment

        rows = with_moment(messages, condition.columns, queue.catalog.now())
        return messages.filter(condition.mask(rows))

    def choose(
        self,
        ids: Ids | None = None,
        selector: AnySelector | None = None,
        magazine: str | None = None,
    ) -> Chosen:
        """
        Choose messages, waiting or in flight, to look at them or to handle them by hand.

        The choice is made once, when this method is called. Damaged messages are never chosen.

        Args:
            ids: Message ids (int64), as in `delete`, or one id, or ``"all"``: every message. Ids of
                messages that are gone are ignored. By default, all that meet *selector*.
            selector: A SQL condition or a function, as in `fire`. With *ids*, both must hold.
            magazine: ``main`` or ``sideline``: only messages that are there. By default, both.

        Returns:
            The chosen messages. Their methods `Chosen.count`, `Chosen.rows`, `Chosen.delete`,
            `Chosen.sideline`, `Chosen.requeue` and `Chosen.reload` handle them.

        Raises:
            BadOption: Neither *ids* nor *selector* is given, or *magazine* is unknown.
            BadOutcome: An id does not belong to this queue.
            BadSelector: *selector* cannot be understood, or the function failed.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: *selector* cannot read messages. They are quarantined; choose again.
        """
        # Not at the top: only people choose.
        from queue_core.verbs.operator.chosen import choose

        queue = self.opened
        both = magazine is None and queue.only is None
        magazines = tuple(Magazine) if both else (queue.magazine(magazine or "main"),)
        # Others may have added columns.
        return choose(queue.catalog, queue.storage, queue.follow(), magazines, ids, selector)

    def edit(self, message_id: int, values: Mapping[str, Any]) -> None:
        """
        Change columns of a message in the sideline, and move it to the tail of main.

        Both happen in one transaction. The message keeps its id, its ``_attempt`` and its time of
        loading. A policy of the queue does not look at it.

        Args:
            message_id: The id of a message that waits in the sideline (`Chosen.sideline` moves it
                there).
            values: New values by column. The others stay.

        Raises:
            BadOption: The message does not wait in the sideline or would expire in main, *values*
                is empty, or it has another value for the queue's key.
            NoSuchQueue: The queue was dropped.
            BadOutcome: The id does not belong to this queue.
            SchemaMismatch: The queue has no such column, or a value does not fit.
            QueueFull: The queue is bounded and has no room; nothing was changed.
            Conflict: Other processes kept moving the message; retry.
            DamagedSegment: The message cannot be read. It is quarantined.
        """
        # Not at the top: only people edit.
        from queue_core.verbs.edit import edit

        queue = self.opened
        info = queue.follow()
        # The log of acts names the columns, without their values.
        chosen = {"ids": message_id, "columns": ", ".join(values)}
        with queue.quarantining(), acting(queue.catalog, "edit", info.name, chosen):
            edit(queue.catalog, queue.storage, info, message_id, values)

    def metadata(self) -> pa.Table:
        """
        Return the pointers and counters of each magazine and shard.

        Source: Magazine's load and fire pointers and counters.

        Returns:
            One row per magazine and shard, with the columns of ``VIEWS["shards"]``.

        Raises:
            NoSuchQueue: The queue was dropped.
        """
        return self.opened.view("shards")

    def failures(self) -> pa.Table:
        """
        Return why messages were sidelined; a message that failed twice has two rows.

        Returns:
            One row per failure, with the columns of ``VIEWS["failures"]``: ``queue``, ``kind``,
            ``reason``, ``consumer`` and ``fingerprint`` (strings), ``message_id`` (int64),
            ``attempt`` (int32) and ``failed_at`` (timestamp, UTC).

        Raises:
            NoSuchQueue: The queue was dropped.
        """
        return self.opened.view("failures")
