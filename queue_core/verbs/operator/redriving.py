"""Redrive: move a part of the sideline to main or to another queue, at a person's wish, in steps.

Changes: to main, slices of the sideline become slices at the tail of main, as in a shovel. To
another queue, the messages are read and written into segments of that queue. One transaction then
loads these and removes the messages here, so that each message is in exactly one of the queues. Its
id, its attempts and its time of loading are new there. Guard: the locks of the sideline's shards.
If a message of the part was fired, settled or moved since it was read, nothing is changed, and the
part is read again. A job also locks its own row, so a job that was cancelled or taken over moves
nothing. Crash before the commit: the messages are in the sideline, and vacuum removes the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.queues import given_up_error
from queue_core.catalog.records import acts
from queue_core.catalog.records.jobs import Wish
from queue_core.catalog.slices import amounts, id_map, read_plans, segment_lookup
from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.moves import SHOVELLED, carry_out
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.transact import Guard, transact
from queue_core.errors import BadOption
from queue_core.segments.distributor import Distributor
from queue_core.segments.reader import read_table
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.selection.acquire import acquire
from queue_core.selection.candidates import find_candidates
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.rounds import still_there
from queue_core.values.column_roles import expiring
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Staged, check_loads
from queue_core.values.plan import messages_in
from queue_core.values.rows import Numbers
from queue_core.values.schema import check_insertable, conform
from queue_core.values.settings import check_count, check_rate
from queue_core.verbs.capacity.bounds import CapacityExceeded, check_capacity, least
from queue_core.verbs.load import load
from queue_core.verbs.quarantine import past_damage, quarantining
from queue_core.verbs.shovel import Shovelful, move_some

#: The most messages of one step without a rate.
STEP_MESSAGES = 10_000
#: The most bytes that one step copies to another queue, as uncompressed Arrow data.
STEP_BYTES = 32 << 20

#: Called in the transaction with the number of moved messages.
Note = Callable[[Connection, int], None]


class _Changed(Exception):
    """Some messages of a part were fired, settled or moved since they were read."""


class Redriving(NamedTuple):
    """From which sideline messages are moved, where to, and which ones."""

    queue: QueueInfo
    #: None: back to main.
    target: QueueInfo | None
    wish: Wish

    @property
    def leaving(self) -> QueueInfo:
        """The queue with the expiry that its messages have in the target, where they are new."""
        if self.target is None:
            return self.queue
        column = expiring(self.target.settings, self.target.schema)
        return _expiring_by(self.queue, column if column in self.queue.schema.names else "")

    def at_present(self, catalog: Catalog) -> Redriving:
        """Return it with the present settings of its queues; raises `NoSuchQueue`."""
        with catalog.read() as connection:
            queue = queues.still_there(connection, self.queue)
            target = self.target and queues.still_there(connection, self.target)
        return self._replace(queue=queue, target=target)

    def shovelful(self, storage_uri: str) -> Shovelful:
        """Return which messages these are, and how fast they are moved; raises `BadSelector`."""
        wish = self.wish
        usual = Shovelful.of(self.leaving, storage_uri, wish.selector)
        return replace(usual, limit=wish.limit, rate=wish.rate, force=wish.force)

    def check(self) -> None:
        """Raise `BadOption`, `SchemaMismatch` or `QueueDeactivated` if the target is unsuitable."""
        target, name = self.target, self.queue.name
        if target is None:
            return
        check_loads(target)
        settings = target.settings
        if target.deactivated_at is not None:
            raise given_up_error(target.name, target.deactivated_at)
        reason = None
        if settings.policy is not None or settings.dedup:
            reason = "has a policy or dedup, which decides about loads; fire and load them instead"
        elif settings.is_rendezvous:
            reason = "keeps no messages (max_size=0)"
        elif settings.is_bounded and settings.overflow == "ring":
            reason = "is a ring, which would drop its oldest messages; set overflow=block"
        if reason is not None:
            raise BadOption(
                f"to={target.name!r}: messages of {name!r} cannot go there; it {reason}"
            )
        check_insertable(self.queue.schema, target.schema, target.name)


def _expiring_by(queue: QueueInfo, column: str | None) -> QueueInfo:
    """Return a queue whose messages expire only by a column; an empty one: not at all."""
    return replace(queue, settings=replace(queue.settings, message_expiry=None, expires_at=column))


def wished(catalog: Catalog, queue: QueueInfo, to: str | None, wish: Wish) -> Redriving:
    """Return a checked redrive from a person's arguments; *to* None, or the queue itself: main."""
    if to is not None and not isinstance(to, str):
        raise BadOption(f"to={to!r}: give the name of a queue, or leave it out for main")
    with catalog.read() as connection:
        queue = queues.still_there(connection, queue)
        if wish.ids is not None:
            located = id_map.located(connection, [queue.id], wish.ids)
            segment_lookup.check(connection, [queue], located)
        target = None if to is None or to == queue.name else queues.find(connection, to)
    check_count("limit", wish.limit)
    check_rate("rate", wish.rate)
    redriving = Redriving(queue, target, wish)
    redriving.check()
    return redriving


def count(catalog: Catalog, storage: Storage, redriving: Redriving) -> int:
    """Return how many messages would be moved now. Raises `DamagedSegment`."""
    request = redriving.shovelful(storage.uri).request(redriving.leaving)
    candidates = _candidates(catalog, storage, request, redriving.wish.ids)
    if candidates is not None:
        there = len(candidates.ids)
    else:
        with catalog.read() as connection:
            where, given = eligible(request)
            there = amounts.messages(connection, *where, given=given)
    limit = redriving.wish.limit
    return there if limit is None else min(there, limit)


def withheld(catalog: Catalog, storage: Storage, redriving: Redriving) -> int:
    """Return how many more `count` would return if no message expired in the target."""
    settings = redriving.leaving.settings
    if settings.message_expiry is None and not expiring(settings, redriving.queue.schema):
        return 0
    every = Redriving(_expiring_by(redriving.queue, ""), None, redriving.wish)
    return count(catalog, storage, every) - count(catalog, storage, redriving)


def find(
    catalog: Catalog, storage: Storage, redriving: Redriving, horizon: Horizon | None = None
) -> Numbers:
    """
    Return which of the wish's ids are those of messages that could be moved now.

    Messages that have come back since the *horizon* are left out.
    """
    request = redriving.shovelful(storage.uri).request(redriving.leaving)
    request = replace(request, horizon=horizon)
    found = _candidates(catalog, storage, request, redriving.wish.ids)
    assert found is not None, "ids are given"
    return found.ids.numbers()


def _candidates(
    catalog: Catalog, storage: Storage, request: FireRequest, ids: IdSet | None
) -> Candidates | None:
    """Return the messages that match now, of *ids* if they are given; None: all."""
    with quarantining(catalog, storage):
        if ids is None:
            return find_candidates(catalog, request)
        # Those that a limit leaves out may be among the ids.
        found = find_candidates(catalog, replace(request, max_messages=None))
    with catalog.read() as connection:
        there = IdSet.of(id_map.ids_of(connection, still_there(connection, request, ids)))
    if found is None:
        return Candidates(there)
    return found._replace(ids=found.ids & there)


class Steps:
    """The steps of a redrive. The messages that match are found once, when the steps begin."""

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        redriving: Redriving,
        horizon: Horizon | None = None,
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._redriving = redriving
        #: The queue that gets the messages.
        self.target = redriving.target or redriving.queue
        self._shovelful = redriving.shovelful(storage.uri)
        self._horizon = horizon or Horizon.now(catalog, [redriving.queue.id], Magazine.SIDELINE)
        self._candidates = _candidates(catalog, storage, self._request(), redriving.wish.ids)

    def run(
        self, left: int | None, guard: Guard | None = None, note: Note | None = None
    ) -> int | None:
        """
        Move the messages of one step, at most *left*: those of a second, if there is a rate.

        Return how many were moved; None: the target has no room for any. Raises what *guard*
        raises, `DamagedSegment`, `SchemaMismatch` or `BadOption` for a message that never fits the
        target, and `QueueDeactivated`.
        """
        most = least(self._shovelful.per_second or STEP_MESSAGES, left)
        while True:
            # A job may take hours, and bounds, expiry or a policy may change meanwhile.
            self._redriving = self._redriving.at_present(self._catalog)
            self._redriving.check()
            request = replace(self._request(), max_messages=most)
            target = self._redriving.target
            with suppress(queues.SettingsChanged), quarantining(self._catalog, self._storage):
                if target is None:
                    return self._to_main(request, guard, note)
                return self._to_another(target, request, guard, note)

    def _request(self) -> FireRequest:
        request = self._shovelful.request(self._redriving.leaving)
        return replace(request, horizon=self._horizon)

    def _to_main(self, request: FireRequest, guard: Guard | None, note: Note | None) -> int | None:
        catalog, queue = self._catalog, self._redriving.queue

        def work(connection: Connection) -> int | None:
            moved = move_some(connection, queue, request, self._candidates, request.max_messages)
            if moved and note is not None:
                note(connection, moved)
            acts.note(connection, moved or 0)
            return moved

        return transact(catalog, "redrive", work, guard)

    def _to_another(
        self, target: QueueInfo, request: FireRequest, guard: Guard | None, note: Note | None
    ) -> int | None:
        catalog, storage, queue = self._catalog, self._storage, self._redriving.queue
        request = replace(request, max_bytes=min(request.max_bytes or STEP_BYTES, STEP_BYTES))
        while True:
            with catalog.read() as connection:
                # With all columns that the messages can have.
                queue = queues.still_there(connection, queue)
                taken = acquire(connection, request, None, self._candidates).taken
                if not taken:
                    return 0
                plan = read_plans.build(connection, [queue], taken, storage.uri)
                ids = IdSet.of(id_map.ids_of(connection, taken))
            rows = read_table(plan, queue.schema.names)
            table = conform(rows, target.schema, target.name, mends=True)
            staged, _ = Distributor(storage).staged(target, table)
            work = partial(
                self._hand_over, queue=queue, target=target, ids=ids, staged=staged, note=note
            )
            try:
                others = (queues.SettingsChanged, _Changed, CapacityExceeded)
                with removed_if_refused(storage, staged, *others):
                    return transact(catalog, "redrive", work, guard, grows=True)
            except _Changed:
                request = replace(request, max_messages=max(len(ids) // 2, 1))
            except CapacityExceeded as error:
                if len(ids) == 1:
                    if error.can_wait:
                        return None
                    raise BadOption(str(error)) from error
                request = replace(request, max_messages=len(ids) // 2)

    def _hand_over(
        self,
        connection: Connection,
        queue: QueueInfo,
        target: QueueInfo,
        ids: IdSet,
        staged: list[Staged],
        note: Note | None,
    ) -> int:
        """Load the copies there, and remove the messages here; raises `_Changed` if one left."""
        # The lock of the target's room comes before the shard locks.
        check_capacity(connection, target, staged, overflow="fail")
        here = FireRequest(queue_ids=(queue.id,), magazine=Magazine.SIDELINE)
        taken = acquire(connection, here, "wait", Candidates(ids)).taken
        if messages_in(taken) != len(ids):
            raise _Changed
        load(connection, self._storage, target, staged)
        away = SHOVELLED._replace(to=None, place=f"queue {target.name}")
        moved = carry_out(connection, queue, away, taken)
        if note is not None:
            note(connection, moved)
        acts.note(connection, moved)
        return moved


def move_now(catalog: Catalog, storage: Storage, redriving: Redriving) -> int:
    """Move all messages in this thread; return how many. It ends where the target is full."""
    steps, moved = Steps(catalog, storage, redriving), 0
    rate, limit = redriving.wish.rate, redriving.wish.limit
    while moved != limit:
        step = past_damage(partial(steps.run, None if limit is None else limit - moved))
        if not step:
            break
        moved += step
        if rate is not None and moved != limit:
            time.sleep(step / rate)
    return moved
