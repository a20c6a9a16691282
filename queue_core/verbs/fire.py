"""Fire: take the next eligible messages of main or the sideline.

Changes: the taken slices belong to the ticket. A slice that a limit cuts is split. Limits of the
queue lose tokens (`limited`). Guard: the consumer's epoch is checked, and only one firing at a time
takes from a shard; otherwise, a later message could be fired before an earlier one. A firing skips
shards from which others fire, and waits only if there are no other shards, and only for short
transactions: if one of a caller lasts longer, it returns without messages, and says why.
Only the catalog records which consumer holds a message. Crash before the commit: nothing was fired.
Crash after it: the ticket holds its messages. The consumer finds the ticket when it comes back. If
it does not come back, unseen messages are put back (`recover`) and others are swept (`sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import dialect, notifications, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, interests, waiters
from queue_core.catalog.holders.tickets import new_ticket, reserved_ticket
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.shard_locks import Backlog
from queue_core.catalog.slices.slices import ShardKey
from queue_core.selection import line, suspects
from queue_core.selection.acquire import acquire, heads_to_find
from queue_core.selection.by_rank import advance
from queue_core.selection.fired import Fired, Refusal
from queue_core.selection.limited import Allotment, narrowed
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.shard_choice import Contention, Lock
from queue_core.selection.suspects import SuspectPart
from queue_core.support import faults
from queue_core.values.histogram import Measured
from queue_core.values.model import Consumer, Magazine, QueueInfo, State, Ticket
from queue_core.values.plan import messages_in
from queue_core.verbs.take_in import take_in_for

#: Seconds to wait for a lock of another transaction: those of ignis take milliseconds, but one of a
#: caller lasts as long as the caller likes.
WAIT_SECONDS = 0.5
#: After a wait in vain, waits are brief for `STUCK_SECONDS`: other work must not wait each time.
BRIEF_SECONDS, STUCK_SECONDS = 0.01, 2.0

#: Where firings have waited in vain lately.
_stuck = Contention(STUCK_SECONDS)


def fire(
    catalog: Catalog,
    consumer: Consumer,
    request: FireRequest,
    *,
    seen: bool = True,
    waiter: int | None = None,
    waits: bool = True,
    known: QueueInfo | None = None,
) -> Fired:
    """
    Fire the next messages as one ticket, if there are any.

    *known* is the queue of the request; raises `QueueChanged` if it has changed since it was read.

    *waiter* is the number with which the firing waits in line (`waiters.LAST` before it has one);
    it gets no ticket while others must go before it (`line`). Without *waits*, it gets none either
    while others are firing from all shards. If another transaction keeps the messages locked for
    too long, it gets none, and `Fired.locked` says when to fire again. With *seen* False, the
    messages can be recovered until their tickets are planned; otherwise, the firing plans how to
    read them. Paused queues, queues in which others go first (`interests`), and queues whose limits
    allow no message, are left out. Suspects are fired apart from others (`suspects`). Raises
    `ConsumerFenced`, `QueueDeactivated`, `SubscriptionDetached` if nothing waits, `QueueTaken`, and
    `Unacknowledged` if earlier tickets must be acknowledged first.
    """
    locked = None
    try:
        take_in_for(catalog, request, _seconds(catalog, request))
    except dialect.StillLocked:
        # Go on: there may be messages that need no intake.
        _stuck.note(catalog.engine, request.where)
        locked = Refusal.by_lock()
    # Only a first look: the transaction that fires looks again.
    with catalog.read(apart=True) as connection:
        open_to, ahead, detached = interests.open_to(
            connection,
            consumer,
            request.queue_ids,
            even_if_paused=request.even_if_paused,
            known=known,
            waiter=waiter or 0,
        )
        if open_to != request.queue_ids:
            request = replace(request, queue_ids=open_to)
        found = suspects.look(connection, consumer, request) if open_to else None
        if found is None:
            if detached and request.magazine is Magazine.MAIN:
                raise queues.detached_error(detached)
            return Fired(locked=locked)
        if ahead and not line.may_pass(connection, request, ahead):
            return Fired(locked=locked)
        parts = suspects.parts(connection, consumer, request, found=found.suspects)
    firing = _Firing(catalog, consumer, seen, waiter, ahead, waits, found.backlog)
    fired = Fired()
    refused: Refusal | None = None
    try:
        for part in parts:
            fired = firing.stalled(part) if part.waits else firing.fire(part)
            if fired.ticket is not None or fired.stalled or fired.locked is not None:
                break
            refused = refused or fired.refused
        else:
            # A part before the last one may have been refused.
            fired = replace(fired, refused=refused)
        catalog.timings.flush(catalog.write)
    except (Exception, KeyboardInterrupt) as error:
        # If a signal interrupted it after the commit, nobody gets the messages.
        if seen and getattr(error, "outcome_unknown", True):
            catalog.unread += firing.made[-1:]
        raise
    if locked is not None and fired.ticket is None:
        fired = replace(fired, locked=locked)
    # With suspects, this part was not all that waits.
    return replace(fired, more=True) if found.suspects else fired


@dataclass(frozen=True, slots=True)
class _Firing:
    """What the parts of a firing, and its attempts, have in common."""

    catalog: Catalog
    consumer: Consumer
    seen: bool
    waiter: int | None
    #: How many firings wait before it.
    ahead: int
    waits: bool
    #: The backlogs of its shards, if it has seen them.
    backlog: Mapping[ShardKey, Backlog] | None
    #: The tickets that its attempts have written.
    made: list[Ticket] = field(default_factory=list)

    def stalled(self, part: SuspectPart) -> Fired:
        """Return `Fired.stalled` if there is a message for a part that must wait."""
        candidates = _candidates(self.catalog, part.request)
        if candidates is None or len(candidates.ids):
            return Fired(stalled=True, suspects=part.is_trial)
        return Fired(refused=candidates.refused)

    def fire(self, part: SuspectPart) -> Fired:
        """Fire a part of the messages; without a ticket if it has none, or others took them."""
        request = part.request
        # Not `transact`: a firing may try two transactions, and only the one that fires passes the
        # crash points.
        while True:
            allowed, refused = request, None
            if request.terms.limits:
                with self.catalog.read() as connection:
                    within, refused = narrowed(connection, request)
                if within is None:
                    return Fired(refused=refused)
                allowed = within
            candidates = _candidates(self.catalog, allowed)
            if candidates is not None and not len(candidates.ids):
                return Fired(refused=candidates.refused or refused)
            fired = self._attempted(request, partial(self._checked, allowed, candidates))
            faults.point("fire.committed")
            for queue_id, wait, messages in fired.waits:
                its = Measured.of_one(max(wait, 0) / 1e6, messages)
                self.catalog.timings.add(queue_id, its)
            done = fired.ticket is not None or fired.locked is not None
            if done or candidates is None or not self.waits:
                return fired
            # Others have fired all candidates: look for more.

    def _attempted(
        self, request: FireRequest, work: Callable[[float, Lock, Connection], Fired]
    ) -> Fired:
        """Attempt to take messages, with more locks each time."""
        seconds = _seconds(self.catalog, request)
        locks = [lock for lock in _locks(request) if self.waits or lock == "skip"]
        fired, locked = Fired(), None
        while fired.ticket is None and locks:
            lock = locks.pop(0)
            try:
                fired = self.catalog.write(partial(work, seconds, lock))
                if fired.reserved and self.catalog.ticket_numbers is not None:
                    self.catalog.ticket_numbers.keep(self.consumer, fired.reserved)
            except dialect.StillLocked:
                _stuck.note(self.catalog.engine, request.where)
                locked = Refusal.by_lock()
                # One of the shards that it needed was not free. Others may be free by now.
                locks = ["skip"] if lock == "some" else []
        return fired if locked is None else replace(fired, locked=locked)

    def _checked(
        self,
        request: FireRequest,
        candidates: Candidates | None,
        seconds: float,
        lock: Lock,
        connection: Connection,
    ) -> Fired:
        """Take messages for a consumer that was not started again; raises `ConsumerFenced`."""
        after = request.after
        # With one writer at a time, it is early enough that `new_ticket` checks the epoch.
        early = after > 0 or dialect.of(connection).writes_in_parallel
        locked = None
        if early:
            its, queue_ids = self.consumer, request.queue_ids
            locked = consumers.check(connection, its, after, queue_ids, committed=after)
        fired = self._take(request, candidates, seconds, lock, connection, locked)
        if fired.ticket is None and not early:
            consumers.check_life(connection, self.consumer)
        return fired

    def _take(
        self,
        request: FireRequest,
        candidates: Candidates | None,
        seconds: float,
        lock: Lock,
        connection: Connection,
        locked: consumers.ConsumerRow | None,
    ) -> Fired:
        if self.ahead and not line.may_pass(connection, request, self.ahead):
            # Others have taken messages since the first look.
            return Fired()
        limited, allotment, refused = bool(request.terms.limits), None, None
        waits = limited or lock != "skip"
        with dialect.of(connection).waiting(connection, seconds if waits else None):
            if limited:
                allotment = Allotment(connection, request)
                within, refused = allotment.narrowed
                if within is None or (candidates is not None and within != request):
                    # Another firing has taken tokens since the search.
                    return Fired(refused=refused)
                request = within
                candidates = None if candidates is None else allotment.admitted(candidates)
            # Only the first attempt uses the backlog that was seen before.
            backlog = self.backlog if lock == "skip" else None
            chosen = acquire(connection, request, lock, candidates, backlog)
        taken = allotment.fitting(chosen.taken, candidates) if allotment else chosen.taken
        if not taken:
            return Fired(refused=refused)
        numbers, reserved = self.catalog.ticket_numbers, range(0)
        if self.seen and locked is not None and numbers is not None:
            number, fired_at, reserved = reserved_ticket(connection, self.consumer, numbers, locked)
        else:
            number, fired_at = new_ticket(connection, self.consumer, seen=self.seen)
        if allotment is not None:
            allotment.spend(taken, fired_at)
        changes = Changes()
        held = {"consumer_id": self.consumer.id, "ticket": number, "fired_at": fired_at}
        for piece, rows in taken:
            values = {"state": int(State.FIRED), **held, "deliveries": piece.deliveries + 1}
            if piece.is_logged:
                changes.enter(piece, rows, **values)
            else:
                changes.mark(piece, rows, **values)
                changes.fire(piece, rows)
        if dialect.of(connection).keeps_versions:
            for key, head, released in heads_to_find(chosen):
                changes.find_head(key, head, released)
        changes.apply(connection)
        if request.terms.fair:
            advance(connection, request, taken)
        if request.terms.makes_room and request.magazine is Magazine.MAIN:
            notifications.notify(connection, *request.queue_ids)
        if self.waiter is not None and self.waiter != waiters.LAST:
            waiters.leave(connection, self.waiter)
        plan = request.plan(connection, taken, fired_at) if self.seen else None
        faults.point("fire.before_commit")
        messages = messages_in(taken)
        ticket = Ticket(consumer=self.consumer, number=number, fired_at=fired_at, messages=messages)
        self.made.append(ticket)
        more = chosen.waited is None or chosen.waited > messages
        if candidates is not None and candidates.complete:
            # In a queue with groups, further messages wait until these are settled.
            more = messages < len(candidates.ids)
        times = [(p.queue_id, fired_at - p.came_at, len(rows)) for p, rows in taken]
        return Fired(
            ticket=ticket,
            plan=plan,
            full=chosen.full,
            more=more,
            waits=tuple(times) if request.magazine is Magazine.MAIN else (),
            reserved=reserved,
        )


def _seconds(catalog: Catalog, request: FireRequest) -> float:
    """Return for how long a firing waits for a lock."""
    return BRIEF_SECONDS if _stuck.is_near(catalog.engine, request.where) else WAIT_SECONDS


def _locks(request: FireRequest) -> Sequence[Lock]:
    """
    Return how to lock shards, in the first attempt and in further ones.

    Others may be firing from every shard, and may leave messages. The firing waits for them in a
    new transaction, which holds no shard locks yet; otherwise, it would take locks out of order.
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
