"""Fire: take the next eligible messages of main or the sideline.

Changes: the taken slices belong to the ticket. A slice that a limit cuts is split. Limits of the
queue lose tokens (`limited`). Guard: the consumer's epoch is checked, and only one firing at a time
takes from a shard; otherwise, a later message could be fired before an earlier one. A firing skips
shards from which others fire, and waits only if there are no other shards: for short transactions,
and not for one of a caller that lasts. Then it finds nothing there for now, and says so.
Only the catalog records which consumer holds a message. Crash before the commit: nothing was fired.
Crash after it: the ticket holds its messages. The consumer finds the ticket when it comes back. If
it does not come back, unseen messages are put back (`recover`) and others are swept (`sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from queue_core.catalog import dialect, notifications
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, interests, waiters
from queue_core.catalog.slices.changes import Changes
from queue_core.selection import line, suspects
from queue_core.selection.acquire import acquire
from queue_core.selection.by_rank import advance
from queue_core.selection.contention import Contention
from queue_core.selection.limited import Allotment, narrowed
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.suspects import Part
from queue_core.selection.turn_choice import Lock
from queue_core.support import faults
from queue_core.values.model import Consumer, Magazine, QueueInfo, State, Ticket

#: Seconds to wait for a lock of another transaction: those of ignis take milliseconds, but one of a
#: caller lasts as long as the caller likes.
WAIT_SECONDS = 0.5
#: The same after a vain wait, for `STUCK_SECONDS`: other work must not wait for each attempt.
BRIEF_SECONDS, STUCK_SECONDS = 0.01, 2.0

_stuck: WeakKeyDictionary[Engine, Contention] = WeakKeyDictionary()


def fire(
    catalog: Catalog,
    consumer: Consumer,
    request: FireRequest,
    *,
    seen: bool = True,
    waiter: int | None = None,
    waits: bool = True,
    known: QueueInfo | None = None,
) -> Ticket | None:
    """
    Fire the next messages as one ticket; return None if there are none.

    *known* is the queue of the request; raises `QueueChanged` if it has changed since it was read.

    *waiter* is the number with which the firing waits in line (`waiters.LAST` before it has one);
    the result is then also None while others must go before it (`line`). Without *waits*, it is
    also None if others are firing from all shards. If another transaction keeps the messages for
    too long, it is None, and `FireRequest.beside` says when to fire again. With *seen* False, the
    messages can be recovered until their tickets are planned. Paused queues, queues in which others
    go first (`interests`), and queues whose limits allow no message, are left out. Suspects are
    fired apart from others (`suspects`). Raises `ConsumerFenced`, `QueueDeactivated`, `QueueTaken`,
    and `Unacknowledged` if earlier tickets must be acknowledged first.
    """
    request.beside.refused_for = None
    with catalog.read() as connection:
        open_to, ahead = interests.open_to(
            connection,
            consumer,
            request.queue_ids,
            even_if_paused=request.even_if_paused,
            known=known,
            waiter=waiter or 0,
        )
        request = replace(request, queue_ids=open_to)
        found = suspects.look(connection, consumer, request) if open_to else None
        if found is None:
            return None
        if ahead and not line.is_enough(connection, request, ahead):
            return None
        parts = list(suspects.parts(connection, consumer, request, found=found))
    for part in parts:
        if part.waits:
            if _finds(catalog, part):
                request.stall.stalled = True
                return None
            continue
        ticket = _fire(catalog, consumer, part, seen, waiter, ahead, waits=waits)
        if ticket is not None or request.beside.refused_for:
            return ticket
    return None


def _finds(catalog: Catalog, part: Part) -> bool:
    """Whether there is a message that the part would take."""
    candidates = _candidates(catalog, part.searching(part.request))
    return candidates is None or bool(len(candidates.ids))


def _fire(
    catalog: Catalog,
    consumer: Consumer,
    part: Part,
    seen: bool,
    waiter: int | None,
    ahead: int,
    *,
    waits: bool,
) -> Ticket | None:
    """Fire a part of the messages; None if it has none, or others have taken them."""
    request = part.request
    # Not `transact`: a firing may try two transactions, and only the one that fires passes the
    # crash points.
    while True:
        allowed = request
        if request.limits is not None:
            with catalog.read() as connection:
                within = narrowed(connection, request, request.limits)
            if within is None:
                return None
            allowed = within
        candidates = _candidates(catalog, part.searching(allowed))
        if candidates is not None and not len(candidates.ids):
            return None
        take = partial(_take, consumer, allowed, candidates, seen, waiter, ahead)
        work = partial(_checked, consumer, allowed, take)
        ticket = _attempted(catalog, request, work, waits=waits)
        faults.point("fire.committed")
        if ticket is not None or candidates is None or not waits or request.beside.refused_for:
            return ticket
        # Others have fired all candidates: look for more.


def _attempted(
    catalog: Catalog,
    request: FireRequest,
    work: Callable[[float, Lock, Connection], Ticket | None],
    *,
    waits: bool,
) -> Ticket | None:
    """Attempt to take messages, with more locks each time."""
    stuck = _stuck.setdefault(catalog.engine, Contention(seconds=STUCK_SECONDS))
    where = (request.queue_ids, request.magazine, request.shards)
    seconds = BRIEF_SECONDS if stuck.is_near(where) else WAIT_SECONDS
    locks = [lock for lock in _locks(request) if waits or lock == "skip"]
    ticket = None
    while ticket is None and locks:
        lock = locks.pop(0)
        try:
            ticket = catalog.write(partial(work, seconds, lock))
        except dialect.StillLocked:
            stuck.note(where)
            request.beside.refuse()
            # Of the turns that it needed, one was not free. Others may be by now.
            locks = ["skip"] if lock == "some" else []
    return ticket


def _locks(request: FireRequest) -> Sequence[Lock]:
    """
    Return which turns to lock, and in further attempts.

    Others may be firing from every shard, and may leave messages. The firing waits for them in a
    new transaction, which holds no turns yet; otherwise, it would take locks out of order.
    """
    if request.terms.fair:
        # The next message by rank may be in any shard.
        return ("wait",)
    if request.selection is None:
        locks_all = request.max_messages is None or request.terms.weights
        return ("skip", "wait") if locks_all else ("skip", "some", "wait")
    # An order across shards always waits: an older message may be in a locked shard.
    return ("wait",) if request.selection.merged else ("skip", "wait")


def _candidates(catalog: Catalog, request: FireRequest) -> Candidates | None:
    if request.selection is None:
        return None
    # Not at the top: it imports what evaluates columns, and most firings take any message.
    from queue_core.selection.candidates import find_candidates

    return find_candidates(catalog, request)


def _checked(
    consumer: Consumer,
    request: FireRequest,
    take: Callable[[float, Lock, Connection], Ticket | None],
    seconds: float,
    lock: Lock,
    connection: Connection,
) -> Ticket | None:
    """Take messages for a consumer that was not started again; raises `ConsumerFenced`."""
    after = request.after
    # Where nobody else writes meanwhile, the new ticket checks the consumer's epoch soon enough.
    early = after > 0 or dialect.of(connection).writes_in_parallel
    if early:
        consumers.check(connection, consumer, after, request.queue_ids, committed=after)
    ticket = take(seconds, lock, connection)
    if ticket is None and not early:
        consumers.check_life(connection, consumer)
    return ticket


def _take(
    consumer: Consumer,
    request: FireRequest,
    candidates: Candidates | None,
    seen: bool,
    waiter: int | None,
    ahead: int,
    seconds: float,
    lock: Lock,
    connection: Connection,
) -> Ticket | None:
    if ahead and not line.is_enough(connection, request, ahead):
        # Others have taken messages since the first look.
        return None
    allotment = None
    waits = request.limits is not None or lock != "skip"
    with dialect.of(connection).waiting(connection, seconds) if waits else nullcontext():
        if request.limits is not None:
            allotment = Allotment(connection, request, request.limits)
            if allotment.request is None or (
                candidates is not None and allotment.request != request
            ):
                # Another firing has taken tokens since the search.
                return None
            request = allotment.request
            candidates = None if candidates is None else allotment.admitted(candidates)
        taken = acquire(connection, request, lock, candidates)
    if allotment is not None:
        taken = allotment.fitting(taken)
    if not taken:
        return None
    number, fired_at = consumers.new_ticket(connection, consumer, seen=seen)
    if allotment is not None:
        allotment.spend(taken, fired_at)
    changes = Changes()
    for piece, rows in taken:
        changes.mark(
            piece,
            rows,
            state=int(State.FIRED),
            consumer_id=consumer.id,
            ticket=number,
            fired_at=fired_at,
            deliveries=piece.deliveries + 1,
        )
        changes.fire(piece, rows)
    changes.apply(connection)
    if request.terms.fair:
        advance(connection, request, taken)
    if request.terms.makes_room and request.magazine is Magazine.MAIN:
        notifications.notify(connection, *request.queue_ids)
    if waiter is not None and waiter != waiters.LAST:
        waiters.leave(connection, waiter)
    if request.reading is not None:
        request.reading.make(connection, taken, fired_at)
    faults.point("fire.before_commit")
    messages = sum(len(rows) for _, rows in taken)
    return Ticket(consumer=consumer, number=number, fired_at=fired_at, messages=messages)
