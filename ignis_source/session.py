"""The driver's side of a streaming query: a store, a consumer, and what it has fired.

One per query and process, begun when Spark first asks for something. Nothing is released at its
end, since Spark may end it without a word, or keep it when the query is gone: the catalog's tickets
and the heartbeat say what is abandoned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from ignis_source.background_tasks import BackgroundTasks
from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.presence import QueryPresence
from ignis_source.queue_refresh import Queues, open_queues, with_columns_of
from queue_core import faults
from queue_core.catalog import consumers, turns
from queue_core.catalog.notifications import Watch
from queue_core.catalog.poller import Poller
from queue_core.column_roles import holding
from queue_core.model import Consumer, QueueInfo, ReadPlan, Ticket, TicketRange
from queue_core.selection.conditions import fireable
from queue_core.selection.queue_rules import of_firing
from queue_core.selection.request import FireRequest, Horizon
from queue_core.selection.selection import Selection
from queue_core.store import Store
from queue_core.verbs import browse
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.fire import fire
from queue_core.verbs.quarantine import quarantine
from queue_core.verbs.read_tickets import read_tickets

#: Seconds after which an idle query looks again, even if nobody has said that anything changed.
BLIND_SECONDS = 5.0
#: The same, where messages may be held, or others go first: their time comes without a word.
HELD_SECONDS = 0.5
#: Seconds between two looks for what dead consumers and damaged segments have left.
TIDY_SECONDS = 60.0


class Session:
    """What a streaming reader keeps between Spark's calls."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.store = Store(options.address, create=False)
        #: As they are now, where `_queues` keeps the columns that the query began with.
        self._current: list[QueueInfo] = []
        self._queues = Queues(self._opened, options.refresh_interval)
        # What is wrong with what is asked for is told at once.
        self._selection()
        # Spark asks eighty times a second. In a store in which others are busy, five looks a second
        # that find nothing are enough.
        self._poller = Poller(Watch(self.store.catalog), first=0.2, last=0.2, blind=BLIND_SECONDS)
        self._standing: QueryPresence | None = None
        self._side: BackgroundTasks | None = None
        self._horizon: Horizon | None = None
        #: Up to which ticket this session has acknowledged, and which it has given out last.
        self._acknowledged = -1
        self._latest = -1
        #: A ticket behind which there is none.
        self._newest = -1
        self._tidied_at = 0.0
        self._backlog: tuple[float, int] = (0.0, 0)
        # Now, since a logged batch is planned again before anything else is asked for.
        quarantine(self.store.catalog, self.store.storage)

    def set_horizon(self) -> None:
        """From now on fire only what is loaded at this moment."""
        ids = [info.id for info in self._queues.infos]
        self._horizon = Horizon.now(self.store.catalog, ids, self._options.magazine)

    def acknowledge(self, offset: Offset) -> None:
        """Every batch up to *offset* is committed."""
        if offset.ticket <= max(self._acknowledged, 0):
            return
        consumer = self._as(offset.consumer)
        if self._options.ack == "browse":
            # The last ticket says where to go on.
            acknowledge(self.store.catalog, consumer, offset.ticket - 1, delete=False)
        else:
            delete = self._options.ack == "onCommit"
            queues = self._queues.infos
            acknowledge(self.store.catalog, consumer, offset.ticket, delete=delete, queues=queues)
        self._acknowledged = offset.ticket
        if self._standing is not None:
            # What is acknowledged is credit again.
            self._standing.tell()

    def next(self, start: Offset, max_messages: int | None, max_bytes: int | None) -> Offset:
        """
        The next ticket behind *start*; *start* itself when there is nothing to fire.

        First one that an earlier run had fired already, else a new one. When there is nothing it
        waits a moment, so that Spark does not ask eighty times a second.
        """
        consumer = self._as(start.consumer)
        number = self._found(consumer, start.ticket)
        if number is None:
            self._tidy()
            number = self._fire_or_wait(consumer, max_messages, max_bytes)
            self._newest = number or start.ticket
        if number is None:
            return start
        self._latest = number
        return Offset(start.consumer, number)

    def plan(self, start: Offset, end: Offset) -> ReadPlan:
        """What the tickets behind *start* up to *end* hold."""
        # The start of batch 0 is not logged; a restarted query has made up another consumer for it.
        after = start.ticket if start.consumer == end.consumer else 0
        consumer = self._as(end.consumer)
        uri = self.store.storage.uri
        catalog, queues = self.store.catalog, self._queues.infos
        tickets = TicketRange(consumer.id, after, end.ticket)
        faults.point("source.planning")
        if self._options.ack == "browse":
            found = browse.browsed(catalog, uri, queues, self._options.magazine, tickets)
        else:
            found = read_tickets(catalog, uri, queues, tickets)
        faults.point("source.planned")
        self._latest = max(self._latest, end.ticket)
        return found

    def backlog(self) -> int:
        """How many messages wait, at most a second old."""
        asked_at, count = self._backlog
        if time.monotonic() - asked_at > 1.0:
            ids = self._wanted(None, None).queue_ids
            with self.store.catalog.read() as connection:
                shards = turns.backlog(connection, ids, self._options.magazine)
            count = sum(shard.waiting for shard in shards.values())
            self._backlog = (time.monotonic(), count)
        return count

    @property
    def latest(self) -> int:
        """The last ticket that this session knows of."""
        return max(self._latest, 0)

    @property
    def partitions(self) -> int:
        """How many partitions a batch has at most."""
        return self._options.partitions or self._queues.concurrency

    def _as(self, name: str) -> Consumer:
        """This process as the consumer of that name; an earlier life of it is over."""
        standing = self._standing
        if standing is None or standing.consumer.name != name:
            if standing is not None:
                standing.stop()
            standing = self._standing = QueryPresence(
                self.store.catalog,
                self._options,
                self.store.consumer(name, beats=True),
                [info.id for info in self._queues.infos],
                lambda: bool(self._queues.running),
            )
            self._latest = self._newest = self._acknowledged = -1
        standing.check()
        return standing.consumer

    def _found(self, consumer: Consumer, after: int) -> int | None:
        if self._newest == after:
            return None
        with self.store.catalog.read() as connection:
            return consumers.ticket_behind(connection, consumer, after)

    def _fire_or_wait(
        self, consumer: Consumer, max_messages: int | None, max_bytes: int | None
    ) -> int | None:
        if self._horizon is not None:
            return self._fire(consumer, max_messages, max_bytes)
        end = time.monotonic() + self._options.idle_wait
        while self._poller.wait(end):
            self._poller.pause()
            number = self._fire(consumer, max_messages, max_bytes)
            if number is not None:
                # A limit may have left some messages.
                self._poller.look_at_once()
                return number
            self._poller.looked(blind=self._patience())
            # Where others never rest there is always a reason to look: answer Spark in time.
            if time.monotonic() >= end:
                break
        return None

    def _fire(
        self, consumer: Consumer, max_messages: int | None, max_bytes: int | None
    ) -> int | None:
        self._queues.refresh_if_due()
        credit = self._standing.credit() if self._standing else None
        if credit is not None:
            max_messages = credit if max_messages is None else min(max_messages, credit)
        wanted = self._wanted(max_messages, max_bytes)
        if not wanted.queue_ids or (max_messages is not None and max_messages <= 0):
            return None
        faults.point("source.before_fire")
        ticket: Ticket | None
        if self._options.ack == "browse":
            ticket = browse.browse_next(self.store.catalog, consumer, wanted)
        else:
            ticket = fire(self.store.catalog, consumer, wanted, seen=False)
        faults.point("source.fired")
        if ticket is not None and self._standing is not None:
            self._standing.tell()
        return ticket.number if ticket is not None else None

    def _wanted(self, max_messages: int | None, max_bytes: int | None) -> FireRequest:
        # A browser takes nothing, and so is not paused.
        browses = self._options.ack == "browse"
        queues = self._queues.infos if browses else self._queues.running
        return FireRequest(
            queue_ids=tuple(info.id for info in queues),
            magazine=self._options.magazine,
            max_messages=max_messages,
            max_bytes=max_bytes,
            horizon=self._horizon,
            selection=self._selection(),
            rules=fireable(queues, self._options.magazine),
        )

    def _opened(self, known: Sequence[QueueInfo]) -> list[QueueInfo]:
        if not known:
            self._current = open_queues(self.store, self._options.queues)
            return self._current
        self._current = [self.store.queue(info.name).info for info in known]
        return with_columns_of(known, self._current)

    def _selection(self) -> Selection | None:
        """What is asked for, and what the settings of the queues say."""
        return Selection.parse(
            self._current,
            self.store.storage.uri,
            self._options.selector,
            self._options.order_by,
            fallback=self._options.fallback,
            eligibility=partial(of_firing, magazine=self._options.magazine),
        )

    def _patience(self) -> float:
        """Seconds after which to look again, though nobody has said that anything changed."""
        held = any(holding(info.settings, info.schema) for info in self._current)
        most = HELD_SECONDS if held or self._options.is_ranked else BLIND_SECONDS
        # Whoever goes first may die without a word.
        gone = self._standing.held_back() if self._standing else None
        return most if gone is None else min(gone, most)

    def _tidy(self) -> None:
        """
        Take back what died unseen, and set apart what executors found damaged.

        The side tasks look for themselves from the first time on.
        """
        if self._side is None and self._options.tasks:
            self._side = BackgroundTasks(self.store, self._options, lambda: self._queues.infos)
            self._side.start()
        if time.monotonic() - self._tidied_at > TIDY_SECONDS or not self._tidied_at:
            self._tidied_at = time.monotonic()
            quarantine(self.store.catalog, self.store.storage)
            self.store.recover()
