"""`Queue`: the verbs of one queue as methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from queue_core.blocking.fire import fire_or_wait
from queue_core.blocking.publish import publish
from queue_core.capacity.bounds import OnFull
from queue_core.catalog import queues, views
from queue_core.catalog.consumers import DEAD_AFTER_SECONDS
from queue_core.column_roles import expiring, holding, stamped
from queue_core.errors import BadOption
from queue_core.failure_kinds import REJECTED
from queue_core.firing import Firing, Messages, consumer_of, ids_of
from queue_core.ids import IdSet, ids_from
from queue_core.model import (
    Consumer,
    QueueInfo,
    ReadPlan,
    ScanTask,
    Staged,
    Ticket,
    magazine_of,
)
from queue_core.outcomes import Settlement
from queue_core.schema import EXPIRES_AT, HOLD_UNTIL, TIMESTAMP, Loadable, conform
from queue_core.segments.buffers import DEFAULT_BUFFERS, Buffer, BufferPool
from queue_core.segments.distributor import Distributor
from queue_core.segments.reader import output_schema, read_table
from queue_core.selection.conditions import fireable
from queue_core.selection.queue_rules import of_firing
from queue_core.selection.request import FireRequest
from queue_core.selection.selection import Selection
from queue_core.settings import QueueSettings, check_rate, check_seconds, is_whole
from queue_core.smart.decide import LoadPolicy
from queue_core.smart.incoming import IncomingRows
from queue_core.smart.load import SmartLoad, load_rows
from queue_core.tasks.compaction import compact
from queue_core.verbs.abandon import abandon
from queue_core.verbs.browse import browse
from queue_core.verbs.deactivate import deactivate
from queue_core.verbs.expire import expire
from queue_core.verbs.peek import peek
from queue_core.verbs.quarantine import setting_apart
from queue_core.verbs.read_tickets import reading
from queue_core.verbs.repair import repair
from queue_core.verbs.reset import reset
from queue_core.verbs.settle import settle
from queue_core.verbs.shovel import Shovelful, shovel
from queue_core.verbs.sweep import sweep

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check
    from queue_core.store import Store


class Queue:
    """One queue of a store. Get it from `Store.queue` or `Store.create_queue`."""

    def __init__(self, store: Store, info: QueueInfo, *, buffers: int = DEFAULT_BUFFERS) -> None:
        self._store = store
        self.info = info
        self._buffers = BufferPool(info.name, info.schema, buffers)
        self._spread = Distributor(store.storage)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}, {self.info.shards} shards, of {self._store!r}>"

    @property
    def store(self) -> Store:
        """The store that the queue is in."""
        return self._store

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.info.name

    @property
    def schema(self) -> pa.Schema:
        """The queue's own columns."""
        return self.info.schema

    def load(
        self,
        rows: Loadable | Buffer,
        timeout: float | None = None,
        *,
        policy: Policy | Check | str | None = None,
        ttl: float | None = None,
        hold: float | None = None,
    ) -> pa.Array:
        """
        Publish messages; durable once this returns.

        *rows* is a pyarrow Table or RecordBatch or a list of dicts, or a buffer from `request`.
        Returns their ids (int64), in the order of the rows. All of them are loaded or none is. A
        bounded queue that has no room and blocks keeps its callers waiting in the order in which
        they came, each for *timeout* seconds at most; without it, until there is room. *policy*
        says what the messages do to queued ones of their key, and these to them, instead of the
        queue's own; the id of a message that is left out is null. Those that do not say themselves
        until when they are wanted are so for *ttl* seconds, and what does not say from when it may
        be fired waits for *hold* seconds. Raises `SchemaMismatch`,
        `BadOption`, `QueueFull`, `StorageUnavailable`, `CatalogUnavailable`.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        if isinstance(rows, Buffer):
            with rows.loading(self.name) as filled:
                return self.load(filled, timeout, policy=policy, ttl=ttl, hold=hold)
        table = conform(rows, self.schema, self.name)
        if table.num_rows == 0:
            return pa.array([], pa.int64())
        if ttl is not None or hold is not None:
            table = self._timed(table, ttl, hold)
        when_full = OnFull(timeout=timeout)
        catalog, storage = self._store.catalog, self._store.storage
        rule = LoadPolicy.of(self.info, policy)
        if rule is not None:
            incoming = IncomingRows(self.info, storage, table, self._staged)
            load = SmartLoad(catalog, storage, self.info, rule, incoming)
            with self._setting_apart():
                return load_rows(load, incoming, when_full)
        staged, order = self._staged(table)
        first_ids = publish(catalog, storage, self.info, staged, when_full)
        if len(staged) == 1:
            # As every small load is: its cost is felt.
            return pa.array(order + first_ids[0])
        return pa.array(ids_from(first_ids, staged)[order], pa.int64())

    def request(
        self,
        rows: int,
        *,
        timeout: float | None = None,
        widths: Mapping[str, int] | None = None,
    ) -> Buffer:
        """
        A buffer in which to write so many rows, column by column, before they are loaded.

        *widths* says of each list or binary column how many elements a message has. Waits while as
        many buffers are out as the queue was opened with, *timeout* seconds at most. Raises
        `SchemaMismatch` for a column without a fixed width, `QueueFull` and `BadOption`.
        """
        if not is_whole(rows) or rows < 1:
            raise BadOption(f"rows={rows!r}: use a whole number, 1 or more")
        if timeout is not None:
            check_seconds("timeout", timeout)
        return self._buffers.request(rows, widths or {}, timeout)

    def fire(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: float = 0.0,
        selector: str | None = None,
        order_by: str | None = None,
        fallback: bool = False,
        magazine: str = "main",
        consumer: Consumer | None = None,
    ) -> Firing:
        """
        Acquire the next messages, each shard in order, evenly from all shards.

        Waits up to *timeout* seconds for the first one; when there is none, the firing is empty.
        Those that wait are served in the order in which they came, unless they have a selector.
        *selector* is a SQL condition over the queue's columns and the metadata columns; *order_by*
        (``"priority DESC, size"``) says what comes first. Both can ask for ``_age``, the seconds
        since a message was loaded. With *fallback* the oldest is taken when nothing meets the
        selector. *consumer* is this process unless given.
        Raises `BadOption`, `BadSelector`, `ConsumerFenced`, and `DamagedSegment`, whose messages
        are then set apart: fire again for the others.
        """
        wanted = self._wanted(max_messages, max_bytes, magazine, selector, order_by, fallback)
        check_seconds("timeout", timeout)
        who = consumer or self._store.consumer()
        catalog = self._store.catalog
        with self._setting_apart():
            ticket = fire_or_wait(catalog, self.info, who, wanted, timeout)
        if ticket is None:
            return Firing(None, output_schema(self.schema).empty_table())
        uri = self._store.storage.uri
        with catalog.read() as connection:
            number = ticket.number
            found = reading(connection, uri, [self.info], who.id, number - 1, number)
        return Firing(ticket, self._read(found, ticket, wanted.selection))

    def get_and_keep(self, max_messages: int | None = None, timeout: float = 0.0) -> Firing:
        """
        Receive the next messages, as `fire` does, and keep them until they are wanted no more.

        They are not swept while this process lives. Each is gone once it is deleted, or confirmed
        by a new message (the policy ``confirm``), and `reset` lets the others come again.
        """
        return self.fire(max_messages, timeout=timeout, consumer=self._store.keeper.consumer())

    def reset(self) -> int:
        """
        Let what was received and kept, and is still there, come again, the oldest first.

        What this process keeps, and what others kept that are dead. Returns how many messages.
        """
        return reset(self._store.catalog, self.info, self._store.keeper.known())

    def delete(self, messages: Messages) -> int:
        """
        Finish fired messages: they are gone. Returns how many were still held.

        *messages* is a `Firing`, or ids. What is not fired any more is left alone. Raises
        `BadOutcome` for an id that is not of this queue.
        """
        return self.settle(Settlement(deleted=ids_of(messages)), consumer_of(messages))

    def sideline(
        self, messages: Messages, reason: str | None = None, *, kind: str = REJECTED
    ) -> int:
        """
        Set fired messages aside; they have failed once more. As `delete`.

        *reason* is any text, and *kind* one word of lower-case letters: the view of failures tells
        both.
        """
        return self.settle(
            Settlement.sideline(ids_of(messages), reason, kind), consumer_of(messages)
        )

    def reload(self, messages: Messages) -> int:
        """Put fired messages back to their old places, without counting a failure. As `delete`."""
        return self.settle(Settlement(reloaded=ids_of(messages)), consumer_of(messages))

    def settle(self, settlement: Settlement, consumer: Consumer | None = None) -> int:
        """Give each of some fired messages its outcome, in one transaction. As `delete`."""
        return settle(self._store.catalog, [self.info], settlement, consumer)

    def peek(
        self,
        count: int = 10,
        *,
        selector: str | None = None,
        order_by: str | None = None,
        magazine: str = "main",
    ) -> pa.Table:
        """The messages that such a firing would take now, as `Firing.messages`."""
        wanted = self._wanted(count, None, magazine, selector, order_by)
        with self._setting_apart():
            found = peek(self._store.catalog, self._store.storage.uri, self.info, wanted)
        return self._read(found, None, wanted.selection)

    def browse(self, *, magazine: str = "main") -> pa.Table:
        """Every message in a magazine, waiting or in flight, as `Firing.messages`."""
        store = self._store
        found = browse(store.catalog, store.storage.uri, [self.info], magazine_of(magazine))
        return self._read(found, None)

    def metadata(self) -> pa.Table:
        """Pointers and counters per magazine and shard: `queue_core.views.SHARDS`."""
        return views.view(self._store.catalog, "shards", self.name)

    def failures(self) -> pa.Table:
        """Why messages were sidelined: `queue_core.views.FAILURES`."""
        return views.view(self._store.catalog, "failures", self.name)

    def shovel(
        self,
        limit: int | None = None,
        *,
        selector: str | None = None,
        rate: float | None = None,
        force: bool = False,
    ) -> int:
        """
        Bring sidelined messages back to main; returns how many were moved.

        At most *limit* of them, and *rate* in a second: unless given, as the queue's settings say.
        What has failed or been fired too often, or has not rested yet, stays: unless *force*.
        Raises `BadOption`, `BadSelector`.
        """
        settings = self.info.settings
        shovelful = replace(
            Shovelful.of(self.info, self._store.storage.uri, selector),
            limit=_positive("limit", limit) or settings.shovel_limit,
            rate=settings.shovel_rate if rate is None else check_rate("rate", rate),
            force=force,
        )
        with self._setting_apart():
            return shovel(self._store.catalog, self.info, shovelful)

    def sweep(
        self, older_than: float | None = None, *, dead_after: float = DEAD_AFTER_SECONDS
    ) -> int:
        """
        Sideline what was fired more than *older_than* seconds ago and never finished.

        Without it, as the queue's setting ``sweep_after`` says. Leaves alone what a living consumer
        works on. What has been fired too often is set aside as well. Returns how many messages were
        moved.
        """
        if older_than is not None:
            check_seconds("older_than", older_than)
        check_seconds("dead_after", dead_after)
        catalog = self._store.catalog
        return sweep(catalog, self.info, older_than, dead_after) + abandon(catalog, self.info)

    def compact(self) -> int:
        """
        Rewrite waiting messages of many small loads, or of files of which little is left, together.

        They keep their ids and their places; consumers and producers go on meanwhile. Returns how
        many were rewritten.
        """
        with self._setting_apart():
            return compact(self._store.catalog, self._store.storage, self.info)

    def expire(self) -> int:
        """Remove what waits and is too old, by the setting ``message_expiry``; returns how many."""
        with self._setting_apart():
            return expire(self._store.catalog, self._store.storage.uri, self.info)

    def repair(self) -> int:
        """Load again what was set apart, once its segments were restored; returns how many."""
        return repair(self._store.catalog, self.info.id)

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the columns of *schema* that are new; they must be nullable. `SchemaMismatch`."""
        self.info = self._store.catalog.write(
            lambda connection: queues.add_columns(connection, self.info, schema)
        )

    def change_settings(self, **settings: Any) -> QueueSettings:
        """Change some settings (`QueueSettings`) while the queue is in use; raises `BadOption`."""
        self.info = self._store.catalog.write(
            lambda connection: queues.change_settings(connection, self.info, settings)
        )
        return self.info.settings

    def scale(self, by: int) -> int:
        """
        Raise the setting ``concurrency``, or lower it where *by* is negative; returns what it is.

        It stays from 0, which pauses, to 100, however far one goes. Of two who scale at once both
        count. Raises `BadOption`.
        """
        if not is_whole(by):
            raise BadOption(f"by={by!r}: use a whole number")
        self.info = self._store.catalog.write(lambda c: queues.scale(c, self.info, by))
        return self.info.settings.concurrency

    def deactivate(self) -> None:
        """
        Give the queue up, for good: from now on nothing is loaded into it nor fired from it.

        What is in it can be peeked at and browsed until it expires. The name stays taken until the
        queue is dropped (`queue_core.verbs.drop`). A second time changes nothing.
        """
        deactivate(self._store.catalog, self.info)
        self.refresh()

    def refresh(self) -> Queue:
        """Read the queue's description again, as others may have changed it."""
        self.info = self._store.queue(self.name).info
        return self

    def _timed(self, table: pa.Table, ttl: float | None, hold: float | None) -> pa.Table:
        """Messages with their times, for which the queue gets a column where it has none."""
        now, settings = self._store.catalog.now(), self.info.settings
        for name, seconds, column, usual in (
            ("ttl", ttl, expiring(settings, self.schema), EXPIRES_AT),
            ("hold", hold, holding(settings, self.schema), HOLD_UNTIL),
        ):
            if seconds is None:
                continue
            at = now + int(check_seconds(name, seconds) * 1e6)
            if column is None:
                self.add_columns(pa.schema([pa.field(usual, TIMESTAMP)]))
                table = conform(table, self.schema, self.name)
            table = stamped(table, column or usual, at)
        return table

    def _wanted(
        self,
        max_messages: int | None,
        max_bytes: int | None,
        magazine: str,
        selector: str | None,
        order_by: str | None,
        fallback: bool = False,
    ) -> FireRequest:
        # Others may have changed what may be fired, and in which order, just now.
        with self._store.catalog.read() as connection:
            queue = queues.as_it_is(connection, self.info)
        return FireRequest(
            queue_ids=(self.info.id,),
            magazine=magazine_of(magazine),
            max_messages=_positive("max_messages", max_messages),
            max_bytes=_positive("max_bytes", max_bytes),
            selection=Selection.parse(
                [queue],
                self._store.storage.uri,
                selector,
                order_by,
                fallback=fallback,
                eligibility=partial(of_firing, magazine=magazine_of(magazine)),
            ),
            rules=fireable([queue], magazine_of(magazine)),
        )

    def _staged(self, table: pa.Table) -> tuple[list[Staged], npt.NDArray[np.int64]]:
        return self._spread.staged(self.info, table)

    def _read(
        self, found: ReadPlan, ticket: Ticket | None, selection: Selection | None = None
    ) -> pa.Table:
        try:
            with self._setting_apart():
                messages = read_table(found)
            if selection is None or not selection.ordered:
                return messages
            now = self._store.catalog.now() if ticket is None else ticket.fired_at
            return selection.sorted(messages, now)
        except BaseException:
            if ticket is not None:
                self._give_back(found.tasks, ticket)
            raise

    def _setting_apart(self) -> AbstractContextManager[None]:
        return setting_apart(self._store.catalog, self._store.storage)

    def _give_back(self, pieces: Iterable[ScanTask], ticket: Ticket) -> None:
        """Nobody has seen the messages of a ticket that cannot be read."""
        blocks: dict[int, BitMap] = {}
        for piece in pieces:
            for part in piece.parts:
                rows = part.rows.as_bitmap()
                segment = piece.segment.segment_id
                blocks[segment] = blocks[segment] | rows if segment in blocks else rows
        self.settle(Settlement(reloaded=IdSet(blocks)), ticket.consumer)


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (not is_whole(value) or value <= 0):
        raise BadOption(f"{name}={value!r}: use a whole number, 1 or more")
    return value
