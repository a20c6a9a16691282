"""The driver's side of a streaming query: a store, a consumer, and the tickets it has fired.

There is one session per query and process, begun with Spark's first call. It releases nothing at
its end, because Spark may end the process without notice, or keep it after the query. The catalog's
tickets and heartbeats show which messages are abandoned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import Connection

from ignis_source.firing import Linger, TicketFirer, tickets_of
from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.partition import IgnisPartition, split
from ignis_source.presence import QueryPresence
from ignis_source.queue_refresh import located
from ignis_source.requests import Requests
from queue_core.catalog import dialect
from queue_core.catalog.holders import consumers, interests
from queue_core.catalog.holders.tickets import ticket_behind
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.poller import Watch
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.errors import BadOption, Unavailable
from queue_core.support import faults
from queue_core.values.model import Consumer, Magazine, QueueInfo, ReadPlan, TicketRange
from queue_core.values.names import KEEPER, listed, of_keeper, of_query
from queue_core.values.schema import output_schema
from queue_core.verbs.acknowledge import acknowledge_within, leave
from queue_core.verbs.quarantine import quarantine
from queue_core.verbs.recover import recover
from queue_core.verbs.take_in import take_in

if TYPE_CHECKING:
    from queue_core.catalog.records.breakers import SharedBreaker
    from queue_core.upkeep.tasks.background import TaskThread

_log = logging.getLogger(__name__)

#: Seconds between two searches for the remains of dead consumers and for damaged segments.
TIDY_SECONDS = 60.0
#: Seconds that a micro-batch with a probe may take, before another process may probe.
_PROBE_SECONDS = 60.0
#: Seconds for which figures are shown again. The sizes of messages are added up over all slices.
FRESH_SECONDS = 1.0
_SIZES_FRESH_SECONDS = 10.0


class Session:
    """The state that a streaming reader keeps between Spark's calls."""

    def __init__(self, options: SourceOptions) -> None:
        self.store = StoreHandle(options.address)
        try:
            self._open(options)
        except BaseException:
            self.store.close()
            raise

    def _open(self, options: SourceOptions) -> None:
        # By the names that the sink gets too.
        breaker = _breaker(self.store, options)
        #: The consumer in Spark's offsets, and the queues after which a new one is named.
        self._name, self._named = options.consumer, options.queues
        self._options = options = located(self.store, options)
        self._requests = Requests(self.store, options)
        self._queues = self._requests.queues
        self._tickets = tickets_of(self.store, self._queues, options)
        watch = Watch(
            self.store.catalog, lambda: [at for info in self._queues.infos for at in info.sources]
        )
        self._firer = TicketFirer(options, self._requests, self._tickets, watch, breaker)
        self._presence: QueryPresence | None = None
        #: The side tasks in the background; None before their start.
        self.tasks: TaskThread | None = None
        # The last acknowledged ticket, and the last ticket that Spark got.
        self._acknowledged = -1
        self._latest = -1
        # A ticket that is known to be the consumer's newest.
        self._newest = -1
        self._tidied_at = 0.0
        self._progress = Progress(self.store, options.magazine)
        least = options.min_messages
        self._linger = None if least is None else Linger(least, options.max_delay)
        # Spark begins the sessions of all sources of a query before it uses one of them. So another
        # source with this consumer has not begun its life yet, and this one is refused if it does.
        self._last_life: int | None = None
        if options.consumer is not None:
            with self.store.catalog.read() as connection:
                known = consumers.by_name(connection, options.consumer)
            self._last_life = known.epoch if known else 0
        # Now, because Spark first plans a logged batch again.
        quarantine(self.store.catalog, self.store.storage)

    def set_horizon(self) -> None:
        """From now on fire only messages that are loaded at this moment."""
        ids = [info.id for info in self._queues.infos]
        while any(info.log_of for info in self._queues.infos):
            # A caller's own transaction may lock some for as long as it likes.
            with suppress(dialect.StillLocked):
                seconds = dialect.TASK_LOCK_SECONDS
                take_in(self.store.catalog, self.store.storage.uri, ids, seconds=seconds)
                break
        self._requests.horizon = Horizon.now(self.store.catalog, ids, self._options.magazine)

    def first(self) -> dict[str, Any]:
        """Return the offset before the first ticket."""
        if self._name is None:
            name = of_query(self._named)
            self._name = of_keeper(name) if self._options.ack == "keep" else name
        return Offset(self._name, 0).to_json()

    def after(self, start: dict[str, Any], *, everything: bool) -> dict[str, Any]:
        """
        Acknowledge committed batches, then fire the next messages.

        Spark asks only when all batches up to *start* are committed. For the last batch of a run
        this is the only notice. With *everything*, the options do not limit the batch, and it does
        not wait for more messages.
        """
        begin = Offset.from_json(start)
        self._name = begin.consumer
        self.acknowledge(begin)
        options = self._options
        most = (None, None) if everything else (options.max_messages, options.max_bytes)
        return self.next(begin, *most, lingers=not everything).to_json()

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[IgnisPartition]:
        """Return the messages of the tickets after *start* up to *end*."""
        finish = Offset.from_json(end)
        self._name = finish.consumer
        plan = self.plan(Offset.from_json(start), finish)
        # A browser fires no messages, so executors select while they read.
        selector = self._options.selector if self._options.ack == "browse" else None
        now = None if selector is None else self.store.catalog.now()
        return split(plan, self.partitions, selector, now)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch."""
        self.acknowledge(Offset.from_json(end))

    def report(self) -> dict[str, Any] | None:
        """Return the last ticket that this session knows, and the figures of the queues."""
        if self._name is None:
            return None
        return Offset(self._name, max(self._latest, 0)).to_json() | self.figures()

    def acknowledge(self, offset: Offset) -> None:
        """Note that every batch up to *offset* is committed."""
        if offset.ticket <= max(self._acknowledged, 0):
            return
        presence = self._as(offset.consumer, offset.ticket)
        self._tickets.acknowledge(presence.consumer, offset.ticket)
        self._acknowledged = offset.ticket
        _log.info("%s: committed up to ticket %d", self._who, offset.ticket)
        # Acknowledged messages restore credit.
        presence.announce()

    def next(
        self,
        start: Offset,
        max_messages: int | None,
        max_bytes: int | None,
        *,
        lingers: bool = False,
    ) -> Offset:
        """
        Return the next ticket after *start*; *start* itself if there are no messages.

        A ticket that an earlier run has fired comes first, then a new one. Without messages, it
        waits a moment, so that Spark does not call it eighty times a second. With *lingers*, it
        also waits while there are fewer messages than the options want.
        """
        presence = self._as(start.consumer, start.ticket)
        number = self._fired_before(presence.consumer, start.ticket)
        if number is not None:
            _log.info("%s: ticket %d, which an earlier run fired, comes first", self._who, number)
        else:
            self._tidy()
            if lingers and not self._firer.stops and self._waits_for_more():
                # Spark would ask again at once.
                time.sleep(self._options.idle_wait)
            else:
                number = self._firer.next(presence, start.ticket, (max_messages, max_bytes))
            self._newest = number or start.ticket
            # Afterwards, so that the first batch does not wait for the imports of tasks.
            self._start_tasks()
        if number is None:
            return start
        if self._linger is not None:
            self._linger.begin_again()
            self._progress.forget()
        self._latest = number
        return Offset(start.consumer, number)

    def plan(self, start: Offset, end: Offset) -> ReadPlan:
        """Return the messages that the tickets after *start* up to *end* hold."""
        # The start of batch 0 is not logged, so a restarted query has made up another consumer.
        after = start.ticket if start.consumer == end.consumer else 0
        consumer = self._as(end.consumer, after).consumer
        faults.point("source.planning")
        if end.ticket > self._latest:
            # An earlier run has logged it, perhaps before a restore of the catalog.
            self._skip_forgotten(consumer, end.ticket)
        plan = self._tickets.plan(TicketRange(consumer, after, end.ticket))
        _log.info(
            "%s: planned tickets %d to %d: %d messages",
            self._who, after + 1, end.ticket, len(plan),
        )  # fmt: skip
        faults.point("source.planned")
        self._latest = max(self._latest, end.ticket)
        return plan

    def figures(self) -> dict[str, float | None]:
        """Return the figures of the queues, for progress reports; at most a second old."""
        return self._progress.figures([info.id for info in self._tickets.fireable_queues])

    @property
    def columns(self) -> pa.Schema:
        """The columns that the queues have, and the metadata columns."""
        return output_schema(self._queues.infos[0].schema)

    @property
    def partitions(self) -> int:
        """The most partitions of a batch."""
        return self._options.partitions or self._queues.concurrency

    @property
    def _who(self) -> str:
        """The queues and the consumer, for the log."""
        queues = listed(self._options.queues)
        name = None if self._presence is None else self._presence.consumer.name
        return f"queue {queues}, consumer {name}"

    def close(self) -> None:
        """Stop all threads and close the store. Spark does not call this; tests do."""
        if self.tasks is not None:
            self.tasks.stop()
        if self._presence is not None:
            self._presence.life.stop()
        self._firer.close()
        self.store.close()

    def _as(self, name: str, committed: int) -> QueryPresence:
        """
        Return this process as the consumer *name*, whose earlier life ends.

        The tickets up to *committed*, which that life fired, are finished as its options said.
        """
        presence = self._presence
        keeps = name.startswith(KEEPER)
        if keeps != (self._options.ack == "keep"):
            does, now = ("keeps", "set ack=keep") if keeps else ("does not keep", "remove ack=keep")
            raise BadOption(
                f"ignis source: ack={self._options.ack}, but the query's checkpoint belongs to "
                f"consumer {name!r}, which {does} its messages: {now}, or start with a new "
                "checkpoint"
            )
        if self._options.consumer not in (None, name):
            raise BadOption(
                f"ignis source: consumer={self._options.consumer!r}, but the query's checkpoint "
                f"belongs to consumer {name!r}, which holds its messages: set that name, or remove "
                "the option; for another consumer, start with a new checkpoint"
            )
        if presence is None or presence.consumer.name != name:
            if presence is not None:
                presence.life.stop()
            queue_ids = [info.id for info in self._queues.infos]

            def begin(connection: Connection) -> Consumer:
                ack, deletes = self._options.ack, consumers.DELETES_ON_COMMIT
                former = consumers.ack_of(connection, name) if committed else None
                life = consumers.enlist(
                    connection,
                    name,
                    beats=True,
                    ack=ack,
                    sweepable=self._options.sweepable,
                    follows=self._last_life,
                )
                if former == deletes != ack:
                    acknowledge_within(connection, life, committed, self._queues.infos, delete=True)
                elif (former, ack) == (consumers.SETTLES, deletes):
                    leave(connection, life, committed, self._queues.infos)
                if not self._options.is_ranked:
                    interests.show(connection, life, queue_ids)
                return life

            consumer = self.store.catalog.write(begin)
            self._last_life = None if self._options.consumer is None else consumer.epoch
            if self._options.reset:
                self._put_back(consumer)
            presence = self._presence = QueryPresence(
                self.store.catalog,
                self._options,
                consumer,
                queue_ids,
                lambda: bool(self._queues.running) and not self._firer.stops,
            )
            self._latest = self._acknowledged = -1
            _log.info("%s: begins epoch %d", self._who, presence.consumer.epoch)
            # A consumer's first life begins without tickets.
            self._newest = 0 if presence.consumer.epoch == 1 else -1
        presence.life.check()
        return presence

    def _put_back(self, consumer: Consumer) -> None:
        """Let the messages that earlier lives of a keeper still keep be fired again."""
        # Not at the top: a query's start does not wait for what few queries use.
        from queue_core.verbs.reset import put_back

        for info in self._queues.infos:
            count = put_back(self.store.catalog, info, consumer)
            _log.info(
                "queue %s, consumer %s: put back %d kept messages", info.name, consumer.name, count
            )

    def _waits_for_more(self) -> bool:
        """Return whether too few messages wait for the next batch."""
        if self._linger is None or self._requests.horizon is not None:
            return False
        # Until it fires, nothing else refreshes the queues, and a paused queue shows no messages.
        self._queues.refresh_if_due()
        if all(info.detached_at for info in (*self._queues.running, *self._queues.paused)):
            # No more messages will come: the other queues have ended.
            return False
        return not self._linger.is_over(self.figures()["waiting"])

    def _fired_before(self, consumer: Consumer, after: int) -> int | None:
        if self._newest == after:
            return None
        with self.store.catalog.read() as connection:
            return ticket_behind(connection, consumer, after)

    def _skip_forgotten(self, consumer: Consumer, logged: int) -> None:
        ids = [info.id for info in self._queues.infos]
        self.store.catalog.write(
            lambda connection: consumers.check(connection, consumer, logged, ids)
        )

    def _tidy(self) -> None:
        """Recover the unseen messages of dead consumers, and quarantine damaged segments."""
        if time.monotonic() - self._tidied_at > TIDY_SECONDS or not self._tidied_at:
            self._tidied_at = time.monotonic()
            # While the clock is in doubt, this waits. Firing and reading report an outage.
            with suppress(Unavailable):
                quarantine(self.store.catalog, self.store.storage)
                recover(self.store.catalog)

    def _start_tasks(self) -> None:
        if self.tasks is None and self._options.tasks:
            # Not at the top: a query's start does not wait for it.
            from queue_core.upkeep.tasks.background import background_tasks

            def there() -> list[QueueInfo]:
                return [info for info in self._requests.current if not info.is_dropped]

            self.tasks = background_tasks(
                self.store.catalog,
                self.store.storage,
                [info.name for info in self._queues.infos],
                known=there,
                tasks=self._options.tasks,
                zookeeper=self._options.zookeeper,
                client_id=self._options.client_id,
            )
            self.tasks.start()


def _breaker(store: StoreHandle, options: SourceOptions) -> SharedBreaker | None:
    breaker = options.breaker
    if breaker is None:
        return None
    # Not at the top: a query's start does not wait for what few queries use.
    from queue_core.catalog.records.breakers import SharedBreaker
    from queue_core.handling.breaker import name_for

    name = breaker.name or name_for(options.queues)
    return SharedBreaker(store.catalog, breaker, name, _PROBE_SECONDS)


class Progress:
    """Reads the figures, and remembers them for a moment."""

    def __init__(self, store: StoreHandle, magazine: Magazine) -> None:
        self._store = store
        self._magazine = magazine
        self._found: dict[str, float | None] = {}
        self._read_at = self._sized_at = float("-inf")
        self._bytes: int | None = None

    def figures(self, queue_ids: Sequence[int]) -> dict[str, float | None]:
        """Return the figures of some queues together, at most a second old."""
        now = time.monotonic()
        if now - self._read_at > FRESH_SECONDS:
            with self._store.catalog.read() as connection:
                if now - self._sized_at > _SIZES_FRESH_SECONDS:
                    self._bytes = amounts.size(connection, queue_ids, self._magazine)
                    self._sized_at = now
                self._found = self._read(connection, queue_ids)
            self._read_at = time.monotonic()
        return self._found | {"bytes": self._bytes}

    def forget(self) -> None:
        """Read the figures at the next call, because messages were fired."""
        self._read_at = float("-inf")

    def _read(self, connection: Connection, queue_ids: Sequence[int]) -> dict[str, float | None]:
        # Not at the top: a query's start does not wait for it.
        from queue_core.catalog.records import figures

        rows = figures.read(connection, queue_ids)
        ages = [row.oldest_age / 1e6 for row in rows if row.oldest_age is not None]
        here = "waiting" if self._magazine is Magazine.MAIN else "sidelined"
        return {
            "waiting": sum(getattr(row, here) or 0 for row in rows),
            "oldest_age": max(ages, default=None),
            "in_flight": sum(row.in_flight or 0 for row in rows),
            "sidelined": sum(row.sidelined or 0 for row in rows),
        }
