"""`QueueAdmin`: what an administrator does with a whole queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from queue_core.catalog import queue_changes, snapshots
from queue_core.catalog.records.acts import Subject, by_hand
from queue_core.errors import BadOption
from queue_core.queue.creating import in_micros, place_of
from queue_core.queue.opened import OpenedQueue
from queue_core.support.interruption import shielded
from queue_core.upkeep.tasks.compaction import compact
from queue_core.upkeep.tasks.expire import retire
from queue_core.values.durations import Duration, check_seconds, is_whole
from queue_core.values.model import Extent
from queue_core.values.schema import TIMESTAMP
from queue_core.values.settings import QueueSettings
from queue_core.verbs.deactivate import deactivate
from queue_core.verbs.detach import attach, detach, stop_late
from queue_core.verbs.drop import drop
from queue_core.verbs.expire import expire
from queue_core.verbs.repair import Repaired, repair
from queue_core.verbs.seek import seek
from queue_core.verbs.snapshot import snapshot
from queue_core.verbs.trim import trim


@shielded
class QueueAdmin:
    """
    What an administrator does with a queue. Get it from `Queue.admin`.

    Each method is one transaction, or one for each part of a large queue.

    Args:
        queue: The queue, with what is known of it.
    """

    def __init__(self, queue: OpenedQueue) -> None:
        self._queue = queue

    @property
    def _subject(self) -> Subject:
        return Subject(self._queue.catalog, self._queue.name)

    def __repr__(self) -> str:
        return f"<Administration of queue {self._queue.name!r}>"

    @by_hand
    def add_columns(self, schema: pa.Schema | type) -> None:
        """
        Add columns to the queue. Existing messages have null in them.

        Add them before producers fill them. `Queue` objects, pools and targets that are open go on
        with the new columns. A Spark query fails before it would leave out values of a message;
        create its DataFrame again, and restart it with its checkpoint.

        Args:
            schema: The new columns, which must be nullable, or a dataclass or pydantic model that
                has them. It may name columns that the queue already has, with the same types.

        Raises:
            NoSuchQueue: The queue was dropped.
            SchemaMismatch: A new column is not nullable, or a type differs or is not supported.
            BadName: A column name is not allowed.
            BadOption: The queue has its columns from the one whose messages it reads.
        """
        if isinstance(schema, type):
            from queue_core.handling.objects.message_class import message_class

            schema = message_class(schema).schema
        self._queue.add_columns(schema)

    @by_hand
    def change_settings(self, **settings: Any) -> QueueSettings:
        """
        Change some settings of the queue, which may be in use.

        Args:
            **settings: Fields of `QueueSettings`. Settings that are not named keep their values.

        Returns:
            All settings, as they are now.

        Raises:
            NoSuchQueue: The queue was dropped.
            BadOption: A setting is unknown, out of range, or names an unsuitable column; or the
                queue has it from the one whose messages it reads.
        """
        changed = self._queue.change(
            lambda c, queue: queue_changes.change_settings(c, queue, settings)
        )
        return changed.settings

    @by_hand
    def scale(self, by: int) -> int:
        """
        Change the setting ``concurrency`` by a number.

        The result is clamped to 0-100; 0 pauses the queue. Concurrent calls add up.

        Args:
            by: How much to add; negative to reduce.

        Returns:
            The concurrency, as it is now.

        Raises:
            NoSuchQueue: The queue was dropped.
            BadOption: *by* is not a whole number.
        """
        if not is_whole(by):
            raise BadOption(f"by={by!r}: use a whole number")
        scaled = self._queue.change(lambda c, queue: queue_changes.scale(c, queue, by))
        return scaled.settings.concurrency

    @by_hand
    def pause(self) -> None:
        """
        Pause the queue for every process: no messages are fired until `resume`.

        Loads, settlements and side tasks continue. Pools and queries notice it within a second or
        two; a firing that has already begun may still end. The view ``queues`` shows the time of
        the pause, and a second call keeps it. The setting ``concurrency`` stays as it is.

        Raises:
            QueueDeactivated: The queue was deactivated.
            NoSuchQueue: The queue was dropped.
        """
        self._queue.change(queue_changes.pause)

    @by_hand
    def resume(self) -> None:
        """
        Let the queue fire messages again after `pause`. It changes nothing if it is not paused.

        A queue whose setting ``concurrency`` is 0 stays paused until the setting is changed.

        Raises:
            QueueDeactivated: The queue was deactivated.
            NoSuchQueue: The queue was dropped.
        """
        self._queue.change(queue_changes.resume)

    @by_hand
    def deactivate(self) -> None:
        """
        Deactivate the queue for good: it accepts and fires no more messages.

        Waiting messages can be peeked at and browsed until they expire, and messages in flight can
        be settled. No other queue can have the name until this one is dropped. A subscription gets
        nothing more from its log, which is not kept for it. A second call changes nothing.

        Raises:
            NoSuchQueue: The queue was dropped.
        """
        deactivate(self._queue.catalog, self._queue.follow())
        self._queue.refresh()

    @by_hand
    def drop(self) -> int:
        """
        Remove a deactivated queue with all its messages, and free its name.

        Messages of main and of the sideline go, also those in flight, with the queue's settings,
        counters and failures. A breaker with its name goes too, and shovels into it fail. This
        cannot be undone. Vacuum removes the files later. The view ``reports`` shows how many
        messages were removed, if there were any.

        Returns:
            How many messages were removed.

        Raises:
            BadOption: The queue is in use, or has subscriptions or clones: deactivate it, and drop
                them, first.
            NoSuchQueue: The queue was dropped before.
        """
        return drop(self._queue.catalog, self._queue.info)

    @by_hand
    def compact(self) -> int:
        """
        Rewrite the waiting messages of small or mostly finished segments into fewer segments.

        The small segments of the queue's log are merged, too, a minute after they were loaded.
        Messages keep their ids and positions. Consumers and producers can work meanwhile.

        Returns:
            How many messages were rewritten.

        Raises:
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; compact again.
            PublicationRefused: A new segment was removed before it was published; retry.
        """
        queue = self._queue
        with queue.quarantining():
            return compact(queue.catalog, queue.storage, queue.follow())

    @by_hand
    def expire(self) -> int:
        """
        Remove waiting messages that have expired.

        In main, they expire by ``message_expiry`` or by their expiry column; in the sideline, only
        by ``sideline_expiry``. The view ``reports`` and the counter ``expired`` show how many. As
        the expiry task does, this also deactivates a queue at the age of its ``queue_expiry``, and
        later drops it.

        Returns:
            How many messages were removed.

        Raises:
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; expire again.
        """
        queue = self._queue
        info = queue.follow()
        with queue.quarantining():
            retire(queue.catalog, info)
            return expire(queue.catalog, queue.storage.uri, info)

    @by_hand
    def trim(self) -> int:
        """
        Remove from the queue's log what its setting ``log`` no longer keeps.

        First, subscriptions that exceed their setting ``late`` are detached or dropped. What
        another subscription has not taken in stays. The view ``reports`` shows how many. The trim
        task does the same every minute.

        Returns:
            How many messages were removed from the log.

        Raises:
            NoSuchQueue: The queue was dropped.
        """
        queue = self._queue
        info = queue.follow()
        stop_late(queue.catalog, info)
        return trim(queue.catalog, info)

    @by_hand
    def detach(self) -> None:
        """
        Let the subscription get nothing more from the log that it reads, and keep its place.

        The log no longer waits for it. What it has taken in stays: firings give what waits in main,
        and then raise an error. A second call changes nothing. A replay or a clone cannot be
        attached again; make another one.

        Raises:
            BadOption: The queue is not a subscription.
            NoSuchQueue: The queue was dropped.
        """
        detach(self._queue.catalog, self._queue.follow())
        self._queue.refresh()

    @by_hand
    def attach(self, start: str | datetime = "earliest") -> None:
        """
        Let a detached subscription read its log again.

        It never goes back before the place at which it was detached, so that no message comes
        twice.

        Args:
            start: Which messages it gets of those since its place that the log still has: all
                (``"earliest"``); those that are loaded from now on (``"latest"``); those that were
                loaded since a time, with its time zone; or those that another subscription to the
                same queue, given by its name, has not taken in.

        Raises:
            BadOption: The queue is not detached, the log is gone, or *start* cannot be understood.
            NoSuchQueue: The queue was dropped, or *start* names none.
            QueueDeactivated: The subscription, or the queue whose log it reads, is deactivated.
        """
        queue = self._queue
        with queue.catalog.read() as connection:
            place = place_of(connection, start)
        attach(queue.catalog, queue.follow(), place)
        queue.refresh()

    @by_hand
    def snapshot(self, name: str, keep: Duration = "7 days", *, dry_run: bool = False) -> Extent:
        """
        Keep the state of the subscription, so that `seek` can go back to it.

        It keeps the messages that wait or are in flight, those of the sideline with their failures
        and due times, and the place in the log. The log and the segments are kept for it. It costs
        no copy of a message.

        Args:
            name: As that of a queue, and unique among the snapshots of this subscription.
            keep: For how long, in seconds or as a text, at most 100 years. The trim task then
                removes it; it also goes when the subscription is dropped.
            dry_run: Whether to count the messages without keeping anything.

        Returns:
            How many messages and bytes it keeps.

        Raises:
            BadOption: The queue is not a subscription, or *keep* is out of range.
            BadName: The name is not allowed.
            QueueExists: The subscription has a snapshot of that name.
            QueueDeactivated: The queue whose log it reads is deactivated.
            NoSuchQueue: The queue was dropped.
        """
        seconds = check_seconds("keep", keep)
        return snapshot(self._queue.catalog, self._queue.info, name, seconds, dry_run=dry_run)

    def snapshots(self) -> pa.Table:
        """
        List the snapshots of the subscription, the oldest first.

        Returns:
            For each, its name ``snapshot``, ``taken_at``, ``ends_at``, and how many ``messages`` it
            has beside those of the log.
        """
        with self._queue.catalog.read() as connection:
            rows = snapshots.listed(connection, self._queue.info.id)
        times = [
            pa.array([getattr(row, at) for row in rows], TIMESTAMP)
            for at in ("created_at", "ends_at")
        ]
        return pa.table(
            [
                pa.array(map(snapshots.name_of, rows), pa.string()),
                *times,
                [int(row.messages) for row in rows],
            ],
            names=["snapshot", "taken_at", "ends_at", "messages"],
        )

    @by_hand
    def seek(self, to: str | datetime, *, force: bool = False, dry_run: bool = False) -> Extent:
        """
        Move the subscription, which is paused, to another place of its log, or to a snapshot.

        At a place, it is as a new one: its messages are gone, also those of the sideline, and it
        gets those of the log from there. A snapshot brings back what it has kept, and stays. A
        detached subscription is attached again.

        Args:
            to: ``"earliest"``, ``"latest"``, a time with its time zone, as in `Store.subscribe`, or
                the name of a snapshot.
            force: Whether to remove messages in flight as well. Their consumers' settlements then
                change nothing, as after a sweep. But a settlement by ids, such as a pool's, also
                settles a message that the same consumer has fired again by then: stop the pool
                before you resume the subscription.
            dry_run: Whether to count the messages without changing anything.

        Returns:
            How many messages and bytes it has then, and how many messages were ``removed``.

        Raises:
            BadOption: The queue is not a subscription, is not paused, has messages in flight, or is
                a replay or a clone; or there is no such place.
            QueueDeactivated: The subscription, or the queue whose log it reads, is deactivated.
            NoSuchQueue: The queue was dropped.
        """
        place = to if isinstance(to, str) else in_micros(to)
        if place is None:
            raise BadOption(
                f"to={to!r}: use 'earliest', 'latest', a snapshot, or a time with a zone"
            )
        return seek(self._queue.catalog, self._queue.info, place, force=force, dry_run=dry_run)

    @by_hand
    def repair(self) -> Repaired:
        """
        Put back quarantined messages whose segment files have been restored.

        Each of their segments is read first. Messages of a segment that is still missing, torn or
        altered stay quarantined.

        Returns:
            ``messages``: how many were put back, and ``left``: for each segment that is still
            damaged, its ``file``, the ``reason``, its number of ``messages``, and the ``remedy``.

        Raises:
            NoSuchQueue: The queue was dropped.
            StorageUnavailable: The storage cannot be read; nothing was changed.
        """
        return repair(self._queue.catalog, self._queue.storage, self._queue.follow().id)
