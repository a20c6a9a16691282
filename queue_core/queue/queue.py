"""`Queue`: the verbs of one queue as methods, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import pyarrow as pa

from queue_core.catalog.holders import consumers
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.identity import clock
from queue_core.catalog.records.acts import Subject, by_hand
from queue_core.catalog.records.jobs import Wish
from queue_core.errors import BadOption, Invalid
from queue_core.queue.admin import QueueAdmin
from queue_core.queue.loading import load
from queue_core.queue.looking import Looking
from queue_core.queue.opened import OpenedQueue, checked_consumer
from queue_core.queue.settling import Settling
from queue_core.queue.within import QueueInTransaction
from queue_core.segments.buffers import DEFAULT_BUFFERS, Buffer, BufferPool
from queue_core.selection.request import Count, Demand, most_messages
from queue_core.selection.rounds import whole_slices
from queue_core.support.interruption import shielded
from queue_core.values.durations import Duration, check_seconds, check_timeout, check_whole
from queue_core.values.model import BY_SHARD, Consumer, Holder, QueueInfo
from queue_core.values.names import SIDELINE_SUFFIX
from queue_core.values.outcomes import Settlement
from queue_core.values.retry import Retry
from queue_core.values.schema import Loadable
from queue_core.values.settings import check_count, check_rate
from queue_core.verbs.abandon import abandon
from queue_core.verbs.abandon import count as count_overdelivered
from queue_core.verbs.reset import reset
from queue_core.verbs.settle import settle
from queue_core.verbs.shovel import Shovelful, shovel
from queue_core.verbs.sweep import count as count_stuck
from queue_core.verbs.sweep import sweep
from queue_core.waiting.firing import Firing

if TYPE_CHECKING:
    from queue_core.catalog.external_transactions import CallersConnection
    from queue_core.handling.objects.fields import DataclassObject
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check
    from queue_core.selection.selection import AnySelector
    from queue_core.store import Store
    from queue_core.verbs.operator.chosen import Ids

#: The class of a queue's messages.
Message = TypeVar("Message")


@shielded
class Queue(Looking, Settling):
    """
    One queue of a store. Get it from `Store.queue` or `Store.create_queue`.

    Threads can share a queue. New messages wait in the magazine ``main``, and messages that failed
    or got stuck wait in the magazine ``sideline`` (words of IgnisMQ). Each method is one
    transaction: it happens completely or not at all.

    ``store.queue("orders_SIDELINE")`` opens the sideline of the queue ``orders`` (IgnisMQ's name).
    `fire`, `peek`, `browse` and `choose` then read the sideline, whatever their argument *magazine*
    is. Messages can be settled and shovelled as usual. Methods that load, or that concern the whole
    queue, such as those of `admin`, raise `BadOption`.

    Every method that reads or writes the store can raise `CatalogUnavailable`,
    `StorageUnavailable` and `DamagedCatalog`, in addition to the errors that it lists.

    Args:
        store: The store that holds the queue.
        info: The queue's description in the catalog, as `Store.queue` reads it.
        buffers: How many buffers from `request` may be outstanding at once, 1 or more.
        message_type: The class of the queue's messages, as for `Store.queue`.
    """

    def __init__(
        self,
        store: Store,
        info: QueueInfo,
        *,
        buffers: int = DEFAULT_BUFFERS,
        message_type: type | None = None,
    ) -> None:
        self._store = store
        #: What its faces share.
        self.opened = OpenedQueue(store.catalog, store.storage, info)
        #: The class of the queue's messages; None if the queue was opened without one.
        self.message_type = message_type
        self._buffers = BufferPool(info.name, info.schema, buffers)

    @property
    def _subject(self) -> Subject:
        return Subject(self._store.catalog, self.name)

    def __repr__(self) -> str:
        if self.opened.only is not None:
            return f"<Sideline {self.name + SIDELINE_SUFFIX!r}, of {self._store!r}>"
        return f"<Queue {self.name!r}, {self.info.shards} shards, of {self._store!r}>"

    def __reduce__(self) -> NoReturn:
        raise Invalid(
            f"queue {self.name!r} can be neither pickled nor copied: give the other process the "
            "address of its store and its name, and open it there with Store.open and Store.queue"
        )

    @property
    def store(self) -> Store:
        """The store that holds the queue."""
        return self._store

    @property
    def info(self) -> QueueInfo:
        """The queue as it was read last."""
        return self.opened.info

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.info.name

    @property
    def schema(self) -> pa.Schema:
        """The queue's own columns, without the metadata columns (`METADATA`)."""
        return self.info.schema

    @property
    def admin(self) -> QueueAdmin:
        """What an administrator does with the queue: its settings, pauses, columns and its end."""
        self.opened.check_whole_queue("admin")
        return QueueAdmin(self.opened)

    def load(
        self,
        rows: Loadable | Buffer | Iterable[object] | DataclassObject,
        timeout: Duration | None = None,
        *,
        policy: Policy | Check | str | None = None,
        ttl: Duration | None = None,
        hold: Duration | None = None,
    ) -> pa.Array:
        """
        Publish messages, all or none. They are durable when this method returns.

        Args:
            rows: A pyarrow Table or RecordBatch, a data frame of pandas, Polars or any library
                that gives Arrow data, a `Buffer` from `request`, or messages: a dict, an object of
                a dataclass or pydantic model, or an iterable of dicts or of objects. Columns are
                matched by name and cast where no value changes; nullable columns may be
                missing; metadata columns, and the row labels of pandas, are ignored.
            timeout: Seconds, or a text such as ``"5s"`` or a ``timedelta``, to wait for room in a
                bounded queue with ``overflow="block"``, 0 or more. By default, wait until there is
                room. Waiting loads are served in order. It also limits each wait for a lock of
                another transaction, which is a minute by default, to half a second or more.
            policy: The policy for this load, if the queue has no log, and no setting ``policy``,
                which all loads go through: a text such as ``"latest"``, a policy value such as
                `Latest`, or a function of a new and a queued message that returns a `Decision`. It
                decides about new and queued messages of the same key.
            ttl: Seconds, or a text such as ``"1h"`` or a ``timedelta``, until the messages expire,
                from 0 to a hundred years. Applies to rows whose own expiry column is null. A queue
                without such a column gets ``_expires_at``.
            hold: Seconds, or a text such as ``"1h"`` or a ``timedelta``, before the messages may be
                fired, from 0 to a hundred years. Applies to rows whose own hold column is null. A
                queue without such a column gets ``_hold_until``.

        Returns:
            The message ids (int64), in the order of the rows. The id of a message that a policy or
            ``dedup`` leaves out is null.

        Raises:
            SchemaMismatch: The rows do not fit the queue's columns, a row has a null key, or a
                string is not valid UTF-8.
            BadOption: An argument is out of range, the queue has another policy or a log, or the
                buffer belongs to another queue.
            QueueFull: The queue was full, and no room became free within *timeout* seconds. Of a
                rendezvous (``max_size=0``), messages that were fired by then stay loaded, and the
                error says how many.
            QueueDeactivated: The queue was deactivated.
            NoSuchQueue: The queue was dropped.
            Conflict: Other processes kept changing the messages that the policy decides about;
                retry.
            DamagedSegment: A queued message that a policy needs cannot be read. It is quarantined;
                load again.
        """
        return load(
            self.opened,
            self._store._loads,
            rows,
            check_timeout("timeout", timeout),
            policy,
            (ttl, hold),
        )

    @overload
    def objects(self, messages: Firing | pa.Table | pa.RecordBatch) -> list[Any]: ...

    @overload
    def objects(
        self, messages: Firing | pa.Table | pa.RecordBatch, message_type: type[Message]
    ) -> list[Message]: ...

    def objects(
        self, messages: Firing | pa.Table | pa.RecordBatch, message_type: type | None = None
    ) -> list[Any]:
        """
        Return messages as objects of a class.

        Source: IgnisMQ, the class of ``getMagazine``.

        Args:
            messages: A `Firing`, or a table from `peek` or `browse`.
            message_type: A dataclass or a pydantic model. By default, the class with which the
                queue was created or opened.

        Returns:
            One object for each message, in order.

        Raises:
            BadOption: The queue was opened without a class, and *message_type* is not given.
            SchemaMismatch: The queue's columns do not fit the class, or the class does not accept
                a message. The messages stay as they are.
        """
        from queue_core.handling.objects.message_class import message_class

        message_type = message_type or self.message_type
        if message_type is None:
            raise BadOption(
                f"queue {self.name!r} was opened without a class: pass message_type, or open it "
                f"with store.queue({self.name!r}, YourClass)"
            )
        found = message_class(message_type)
        found.check_fits(self.schema, self.name)
        table = messages.messages if isinstance(messages, Firing) else messages
        return found.objects_in(table, self.name)

    def request(
        self,
        rows: int,
        *,
        timeout: Duration | None = None,
        widths: Mapping[str, int] | None = None,
    ) -> Buffer:
        """
        Return a buffer; write its columns in place, then load it without a copy.

        It has the columns that the queue had when it was opened: open it again for newer ones.
        Source: Herzner, FIFO queue with request and release.

        Args:
            rows: How many messages the buffer holds, 1 or more.
            timeout: Seconds, or a text such as ``"5s"`` or a ``timedelta``, to wait for a free
                buffer, 0 or more. By default, wait until there is one. `Store.queue` says how many
                buffers may be outstanding.
            widths: Elements per message of each list or binary column, by the column's name.

        Returns:
            The `Buffer`. Load it or release it.

        Raises:
            SchemaMismatch: A column that may not be null has no fixed width, and *widths* does not
                name it.
            QueueFull: No buffer became free within *timeout* seconds.
            BadOption: An argument is out of range, or *widths* names no column of variable width.
        """
        self.opened.check_whole_queue("request")
        check_whole("rows", rows, 1)
        timeout = check_timeout("timeout", timeout)
        return self._buffers.request(rows, widths or {}, timeout)

    def fire(
        self,
        max_messages: Count | None = None,
        *,
        max_bytes: int | None = None,
        timeout: Duration | None = 0.0,
        selector: AnySelector | None = None,
        order_by: str | None = None,
        order: str = BY_SHARD,
        fallback: bool = False,
        magazine: str = "main",
        consumer: Consumer | None = None,
        even_if_paused: bool = False,
    ) -> Firing:
        """
        Take the next message, or the next messages, in the order of each shard.

        First in, first out holds per shard: a total order takes a queue with ``shards=1``, one key
        for all messages, or ``order="global"``. By default, the shards take turns: a call takes
        from a second one if the first has not enough, or for each 1000 messages; while other
        consumers fire from the queue too, only if the first has not enough. From the sideline, with
        a selector, or with *max_bytes* alone, it takes evenly from all shards.

        The messages stay in flight until they are settled (`delete`, `sideline`, `reload`,
        `settle`), or until a sweep sidelines them. Consumers that wait are served first come, first
        served, except for those with a selector or an order. A call with *max_messages* goes before
        them while several shards have messages, and enough to give each of them as many as the call
        takes.

        Args:
            max_messages: At most this many messages, 1 or more, or ``"all"``: all waiting messages,
                up to 8,192 slices. By default, one message; with *max_bytes*, as many as fit.
            max_bytes: At most this many bytes of messages, as uncompressed Arrow data, 1 or more.
                Each message counts as the mean size of its load. One message is always taken, even
                if it is larger.
            timeout: Seconds, or a text such as ``"5s"`` or a ``timedelta``, to wait for the first
                message, 0 or more. None: wait until there is one. By default, do not wait.
            selector: A SQL condition over the queue's columns, the metadata columns and ``_age``,
                the seconds since a message was loaded. Or a function of a pyarrow RecordBatch of
                these columns that returns a pyarrow BooleanArray, one value per message; with
                `Predicate`, of only some columns. By default, take any message.
            order_by: The order in which messages are chosen, such as ``"priority DESC, size"``. It
                may use ``_age`` too. By default, the queue's priority, then the order of loading.
                A queue with ``fair_by`` has an order of its own, and takes neither this nor
                ``order="global"``.
            order: The order without *order_by*. ``"shard"``: each shard in its order, the shards in
                turn. ``"global"``: by the time of loading over all shards, where each shard still
                keeps its order. It takes longer, as it looks at the oldest messages of every shard,
                and waits for other firings. Messages of one load come shard by shard.
            fallback: Whether to take the oldest message of a shard if none meets *selector*; with
                ``order="global"``, the oldest of all shards.
            magazine: ``main`` or ``sideline``.
            consumer: The consumer that takes the messages. By default, this process
                (`Store.consumer`).
            even_if_paused: Whether to take messages even if the queue is paused (by `pause`, or
                because its setting ``concurrency`` is 0).

        Returns:
            A `Firing` with the messages and their ticket; empty if there is no message. It is also
            empty, with `Firing.opens_in`, if limits have refused the messages, or if another
            transaction, such as a caller's own, has kept them for half a second. `Firing.full` says
            whether *max_bytes* has left messages.

        Raises:
            BadOption: An argument is out of range.
            BadSelector: *selector* or *order_by* cannot be understood, or the function raised an
                error or returned something else; no message was taken.
            ConsumerFenced: The same consumer was started again elsewhere.
            QueueDeactivated: The queue was deactivated.
            SubscriptionDetached: The subscription was detached, and no message waits in it.
            QueueTaken: Another consumer has the queue to itself.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; fire again for the
                others.
        """
        taker = checked_consumer(consumer)
        demand = Demand(
            max_messages=most_messages(max_messages, max_bytes),
            max_bytes=check_count("max_bytes", max_bytes),
            magazine=self.opened.magazine(magazine),
            selector=selector,
            order_by=order_by,
            order=order,
            fallback=fallback,
            even_if_paused=even_if_paused,
        )

        def who() -> Consumer:
            return taker or self._store.consumer()

        return self.opened.fire(demand, who, check_timeout("timeout", timeout))

    def get_and_keep(
        self,
        max_messages: Count | None = None,
        timeout: Duration | None = 0.0,
        *,
        order: str = BY_SHARD,
    ) -> Firing:
        """
        Take the next message or messages as `fire` does, and keep them while this process lives.

        Kept messages are not swept. To finish a message, delete it, or load a message that confirms
        it (policy ``confirm``). `reset` puts the unfinished messages back. Source: Herzner,
        get-and-keep.

        Args:
            max_messages: At most this many messages, 1 or more, or ``"all"`` waiting messages, as
                in `fire`. By default, one message.
            timeout: Seconds, or a text such as ``"5s"`` or a ``timedelta``, to wait for the first
                message, 0 or more. None: wait until there is one. By default, do not wait.
            order: ``"shard"`` or ``"global"``, as in `fire`.

        Returns:
            A `Firing` with the messages and their ticket; empty if there is no message.

        Raises:
            BadOption: An argument is out of range.
            QueueDeactivated: The queue was deactivated.
            SubscriptionDetached: As in `fire`.
            QueueTaken: Another consumer has the queue to itself.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; call again.
        """
        self.opened.check_whole_queue("get_and_keep")
        keeper = self._store.keeper.consumer()
        return self.fire(max_messages, timeout=timeout, order=order, consumer=keeper)

    def reset(self, *, consumer: str | None = None) -> int:
        """
        Put kept messages back to their old positions, so that they are fired again, oldest first.

        Oldest first holds per shard, as in `fire`: for a total order, create the queue with
        ``shards=1``, use one key, or fire with ``order="global"``. By default, this puts back the
        messages that this process keeps, and those of dead processes. Source: Herzner, resend
        control.

        Args:
            consumer: The name of a consumer that keeps messages (`get_and_keep`), as the view
                ``consumers`` shows it, or the option ``consumer`` of a query with ``ack=keep``.
                Only its messages are put back, even if its process lives; that process does not
                hold them any more.

        Returns:
            How many messages were put back.

        Raises:
            BadOption: No consumer of the name *consumer* keeps messages.
            NoSuchQueue: The queue was dropped.
        """
        self.opened.check_whole_queue("reset")
        self.opened.follow()
        keeper = self._store.keeper.known()
        return reset(self._store.catalog, self.info, keeper, consumer=consumer)

    def within(self, connection: CallersConnection) -> QueueInTransaction:
        """
        Return the queue with verbs that are a part of your own transaction.

        What `load`, `fire`, `delete`, `sideline`, `reload` and `settle` of the result change is
        committed together with your own changes, or never: a message and a row of your tables, or
        neither.

        Args:
            connection: A connection to the database of the catalog: a ``Connection`` of SQLAlchemy,
                of psycopg (3) or of `sqlite3`. You commit its transaction, or roll it back.

        Returns:
            The queue within the transaction. Each call checks the connection.
        """
        return QueueInTransaction(self.opened, connection)

    @by_hand
    def shovel(
        self,
        limit: int | None = None,
        *,
        selector: str | None = None,
        rate: float | None = None,
        force: bool = False,
        to: str | None = None,
        ids: Ids | None = None,
        dry_run: bool = False,
    ) -> int:
        """
        Move sidelined messages back to the tail of main, so that they are tried again.

        Messages that wait for their time are moved too; dead messages are not. Messages that enter
        the sideline during the call stay there, and so do messages that would expire in main: in
        another queue, which gets them as new ones, only by its expiry column. A bounded queue takes
        only as many messages as it has room for, and a ring or a rendezvous takes all. In a
        subscription, they come before those that it has not taken in from the log. Source: IgnisMQ.

        Args:
            limit: At most this many messages, 1 or more. By default, the setting ``shovel_limit``.
            selector: Only messages that meet this SQL condition, as in `fire`.
            rate: At most this many messages a second, more than 0. By default, the setting
                ``shovel_rate``, and to another queue no limit.
            force: Whether to also move dead messages (``retry``), and messages that were fired too
                often (``max_deliveries``).

            to: The name of another queue of the store, instead of main. The messages are loaded
                there, with new ids and without their attempts, and removed here, in one transaction
                for each part. Its columns must fit. By default, and with this queue's own
                name, main.
            ids: Only messages with these ids, as in `choose`. By default, all.
            dry_run: Whether to count the messages without moving them.

        Returns:
            How many messages were moved; with *dry_run*, how many would be moved into a queue with
            enough room.

        Raises:
            BadOption: An argument is out of range, or the queue *to* has a policy or ``dedup``, is
                a ring, a rendezvous or a subscription, or never has room for a message.
            NoSuchQueue: The queue was dropped, or the store has no queue *to*.
            SchemaMismatch: The messages do not fit the columns of the queue *to*.
            BadSelector: *selector* cannot be understood.
            BadOutcome: An id does not belong to this queue.
            DamagedSegment: Messages cannot be read by *selector*. They are quarantined.
        """
        self.opened.follow()
        settings = self.info.settings
        limit = check_count("limit", limit) or settings.shovel_limit
        if rate is None and to in (None, self.name):
            rate = settings.shovel_rate
        if to is not None or ids is not None or dry_run:
            from queue_core.verbs.operator import redriving
            from queue_core.verbs.operator.chosen import id_set

            wish = Wish(selector=selector, rate=rate, limit=limit, force=force, ids=id_set(ids))
            wished = redriving.wished(self._store.catalog, self.info, to, wish)
            run = redriving.count if dry_run else redriving.move_now
            return run(self._store.catalog, self._store.storage, wished)
        shovelful = replace(
            Shovelful.of(self.info, self._store.storage.uri, selector),
            limit=limit,
            rate=check_rate("rate", rate),
            force=force,
            # Each verb touches as many shards: one round is enough for a slice of each.
            round_slices=max(whole_slices(), self.info.shards),
        )
        with self.opened.quarantining():
            return shovel(self._store.catalog, self.info, shovelful)

    @by_hand
    def start_shovel(
        self,
        limit: int | None = None,
        *,
        selector: str | None = None,
        rate: float | None = None,
        force: bool = False,
        to: str | None = None,
        ids: Ids | None = None,
        who: str | None = None,
    ) -> str:
        """
        Start a shovel as a job, which any process with side tasks runs and continues after a crash.

        The view ``jobs`` shows its progress, and `StoreAdmin.cancel` ends it. It moves the messages
        that are in the sideline now, and waits where the target is full. It goes with the queue
        when that is dropped.

        Args:
            limit: As in `shovel`. By default, no limit, whatever ``shovel_limit`` says.
            selector: As in `shovel`.
            rate: As in `shovel`. By default, no limit, whatever ``shovel_rate`` says.
            force: As in `shovel`.
            to: As in `shovel`.
            ids: As in `shovel`.
            who: The name that the view ``jobs`` shows, up to 200 characters. By default, the user
                and the machine.

        Returns:
            The id of the job.

        Raises:
            BadOption: As in `shovel`; the job fails where *to* never has room for a message.
            BadSelector: As in `shovel`.
            BadOutcome: As in `shovel`.
            NoSuchQueue: As in `shovel`.
            SchemaMismatch: As in `shovel`.
            DamagedSegment: Messages cannot be read by *selector*. They are quarantined.
        """
        from queue_core.verbs.operator import jobs, redriving
        from queue_core.verbs.operator.chosen import id_set

        catalog = self._store.catalog
        wish = Wish(selector=selector, rate=rate, limit=limit, force=force, ids=id_set(ids))
        wished = redriving.wished(catalog, self.info, to, wish)
        return jobs.start(catalog, self._store.storage, wished, who)

    @by_hand
    def sweep(
        self,
        older_than: Duration | None = None,
        *,
        dead_after: Duration = DEAD_AFTER_SECONDS,
        consumer: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """
        Sideline messages that were fired too long ago and never settled.

        Messages of living consumers are left alone, but a consumer of a plain `fire` sends no
        heartbeat: its messages are swept by their age alone. A dead streaming query may get its
        messages back when it restarts with its checkpoint (option ``sweepable``), so they are left
        alone too. If it will not restart, pass its name as *consumer*. Waiting messages that were
        fired too often (``max_deliveries``) are also sidelined. Source: IgnisMQ.

        Args:
            older_than: Seconds, or a text such as ``"15m"`` or a ``timedelta``, since the firing, 0
                or more. By default, the setting ``sweep_after``; 0 with *consumer*.
            dead_after: Seconds, or a text or a ``timedelta`` likewise, without a heartbeat after
                which a consumer counts as dead, 0 or more.
            consumer: The name of a dead consumer. Only its messages are swept, including those that
                wait for its restart. Those that its query has published to this store are deleted
                instead, and count too; what it has written elsewhere arrives twice after a shovel.
            limit: At most this many messages, 1 or more; a call ends before the slice that would
                exceed them. By default, all.
            dry_run: Whether to count the messages without moving them.

        Returns:
            How many messages were moved; with *dry_run*, how many would be moved, if *limit* cuts
            no slice.

        Raises:
            BadOption: An argument is out of range, or *consumer* is unknown to the store or alive.
            NoSuchQueue: The queue was dropped.
        """
        self.opened.check_whole_queue("sweep")
        older_than = check_timeout("older_than", older_than)
        dead_after = check_seconds("dead_after", dead_after)
        limit = check_count("limit", limit)
        self.opened.follow()
        catalog = self._store.catalog
        if consumer is not None:
            # It corrects the heartbeat of a clock that was ahead, so that the consumer can be dead.
            clock.check(catalog)
            with catalog.read() as connection:
                consumers.check_dead(connection, consumer, dead_after)
        if dry_run:
            stuck = count_stuck(catalog, self.info, older_than, dead_after, consumer)
            if consumer is None:
                stuck += count_overdelivered(catalog, self.info)
            return stuck if limit is None else min(stuck, limit)
        swept = sweep(
            catalog, self.info, older_than, dead_after, consumer=consumer, by_hand=True, limit=limit
        )
        if consumer is not None:
            return swept
        left = None if limit is None else limit - swept
        return swept + abandon(catalog, self.info, limit=left)

    def refresh(self) -> Queue:
        """
        Read the queue's columns and settings again, because others may have changed them.

        Returns:
            This queue.

        Raises:
            NoSuchQueue: The queue was dropped.
        """
        self.opened.refresh()
        return self

    def _of(self, info: QueueInfo) -> Queue:
        return Queue(self._store, info)

    def _settle(self, settlement: Settlement, holder: Holder, policy: Retry | None) -> int:
        return settle(self._store.catalog, [self.info], settlement, holder, retry=policy)
