"""`OpenedQueue`: a queue as its faces know it, with the columns and settings read last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import queue_changes, queues
from queue_core.catalog.database import Catalog
from queue_core.errors import BadOption, StorageUnavailable
from queue_core.segments.distributor import Distributor
from queue_core.segments.reader import read_table
from queue_core.segments.storage import Storage
from queue_core.selection.request import Demand, FireRequest
from queue_core.selection.selection import Selection
from queue_core.values.ids import IdSet
from queue_core.values.model import Consumer, Magazine, QueueInfo, ReadPlan, Ticket, magazine_of
from queue_core.values.names import SIDELINE_SUFFIX
from queue_core.values.outcomes import Settlement
from queue_core.values.schema import output_schema
from queue_core.verbs.quarantine import quarantining
from queue_core.verbs.read_tickets import plan_firing
from queue_core.verbs.recover import recover_ticket, recover_unread
from queue_core.verbs.settle import settle
from queue_core.waiting.fire import fire_or_wait
from queue_core.waiting.firing import Firing, of_plan
from queue_core.watching.views import view


class OpenedQueue:
    """A queue of a store, which the faces of the queue share. Thread-safe."""

    def __init__(self, catalog: Catalog, storage: Storage, info: QueueInfo) -> None:
        self.catalog = catalog
        self.storage = storage
        self.info = info
        #: The only magazine that is opened, as by the name of a sideline; None for both.
        self.only: Magazine | None = None
        self.spread = Distributor(storage)
        #: The last demand, the queue as it was then, and the request that they made.
        self._asked: tuple[Demand, QueueInfo, FireRequest] | None = None

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.info.name

    @property
    def schema(self) -> pa.Schema:
        """The queue's own columns."""
        return self.info.schema

    def refresh(self) -> None:
        """Read the queue's columns and settings; raises `NoSuchQueue`."""
        with self.catalog.read() as connection:
            self.info = queues.present(connection, self.info)

    def follow(self) -> QueueInfo:
        """Read them if another process has changed them; raises `NoSuchQueue`."""
        # Another thread may replace `info` by an older one, so return what was read here.
        with self.catalog.read() as connection:
            self.info = found = queues.still_there(connection, self.info)
        return found

    def change(
        self, work: Callable[[Connection, QueueInfo], QueueInfo], *, grows: bool = False
    ) -> QueueInfo:
        """Change the queue in one transaction; return it as it is then."""
        self.info = changed = self.catalog.write(lambda c: work(c, self.info), grows=grows)
        return changed

    def add_columns(self, schema: pa.Schema) -> QueueInfo:
        """Add columns; return the queue; raises `NoSuchQueue`, `SchemaMismatch` and `BadName`."""
        return self.change(lambda c, queue: queue_changes.add_columns(c, queue, schema), grows=True)

    def magazine(self, name: str) -> Magazine:
        """Return the magazine *name*, or the only one that is opened; raises `BadOption`."""
        return magazine_of(name) if self.only is None else self.only

    def demanded(self, demand: Demand) -> Demand:
        """Return what a consumer takes, from the only magazine that is opened if there is one."""
        return demand if self.only is None else replace(demand, magazine=self.only)

    def check_whole_queue(self, verb: str) -> None:
        """Raise `BadOption` if only the sideline is opened, and *verb* needs the whole queue."""
        if self.only is not None:
            raise BadOption(
                f"queue {self.name + SIDELINE_SUFFIX!r} is the sideline of queue {self.name!r}, "
                f"and {verb} needs the whole queue; use the name {self.name!r}"
            )

    def request(self, demand: Demand, queue: QueueInfo) -> FireRequest:
        """Return the request of a consumer by the settings that the queue has in *queue*."""
        is_plain = demand.selector is None and demand.left_out is None and demand.order_by is None
        asked = self._asked
        if is_plain and asked is not None and asked[1] is queue and asked[0] == demand:
            return asked[2]
        request = demand.request([queue], demand.selection([queue]), self.storage.uri)
        if is_plain:
            # Most callers ask for the same again and again.
            self._asked = (demand, queue, request)
        return request

    def fire(self, demand: Demand, who: Callable[[], Consumer], timeout: float | None) -> Firing:
        """Fire for the consumer of *who*, or wait up to *timeout* seconds; read the messages."""

        def request_of(queue: QueueInfo) -> FireRequest:
            if queue.schema_version >= self.info.schema_version:
                self.info = queue
            return self.request(demand, queue)

        recover_unread(self.catalog)
        with self.quarantining():
            fired, request = fire_or_wait(self.catalog, self.info, who, request_of, timeout)
        ticket = fired.ticket
        if ticket is None:
            return Firing(output_schema(self.schema).empty_table(), fired)
        try:
            plan = plan_firing(self.catalog, ticket, fired, request)
            messages = self.read(plan, ticket, request.selection)
        except BaseException:
            # If they are back already, nothing holds this ticket any more.
            self.catalog.unread.append(ticket)
            raise
        return of_plan(fired, messages, plan)

    def view(self, name: str) -> pa.Table:
        """Return a view of this queue, not of another one that has its name by now."""
        return view(self.catalog, name, self.info, self.storage.uri)

    def read(
        self, plan: ReadPlan, ticket: Ticket | None = None, selection: Selection | None = None
    ) -> pa.Table:
        """Read messages. If that fails, put those of the ticket back, which no caller has seen."""
        with self.quarantining():
            try:
                messages = read_table(plan)
                if selection is None:
                    return messages
                now = self.catalog.now() if ticket is None else ticket.fired_at
                return selection.sorted(messages, now)
            except StorageUnavailable:
                # Not a delivery: the messages are not the reason, and it may last.
                if ticket is not None:
                    recover_ticket(self.catalog, ticket)
                raise
            except BaseException:
                if ticket is not None:
                    ids = IdSet.of_scan(plan.tasks)
                    unread = Settlement(reloaded=ids, unhandled=ids)
                    settle(self.catalog, [self.info], unread, ticket)
                raise

    def quarantining(self) -> AbstractContextManager[object]:
        """Quarantine damaged segments that the block meets."""
        return quarantining(self.catalog, self.storage)


def checked_consumer(given: object) -> Consumer | None:
    """Return the consumer that a caller has given, if any; raises `BadOption`."""
    if given is None or isinstance(given, Consumer):
        return given
    raise BadOption(f"consumer={given!r}: use what Store.consumer(name) returns")
