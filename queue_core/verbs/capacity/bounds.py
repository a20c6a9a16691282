"""Check the capacity of a bounded queue, within the transaction that brings messages into it.

Main holds at most `max_size` messages and `max_bytes` bytes, waiting or in flight. A message counts
until it is deleted, expires or goes to the sideline. With the setting `room` on_fire, it counts
until it is fired, and again when it comes back, even if the queue is full by then. Guard: a
transaction that adds messages to a bounded queue first takes a lock of this queue, before all other
locks, and then counts. Transactions that remove or fire messages meanwhile only add capacity.
Retries had their room before: they take no lock, and may exceed the bound. Unbounded queues take no
such lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from queue_core.catalog.holders import named_locks, waiters
from queue_core.catalog.slices.usage import Amount, Usage, read_usage, unevictable
from queue_core.errors import BadOption
from queue_core.selection.acquire import acquire
from queue_core.selection.request import Candidates, FireRequest
from queue_core.values.model import QueueInfo, Staged
from queue_core.values.plan import Taken


class CapacityExceeded(Exception):
    """The queue has no capacity for a load, whose transaction ends."""

    def __init__(self, queue: QueueInfo, message: str, *, can_wait: bool = True) -> None:
        super().__init__(message)
        self.queue_id = queue.id
        #: Whether the load may fit later.
        self.can_wait = can_wait


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFull:
    """How a load behaves while the queue is full."""

    #: ``block``, ``fail`` or ``ring``; None: as the queue's settings say.
    overflow: str | None = None
    #: Whether it also settles messages of the queue, and so makes room for those in line.
    overtakes: bool = False
    #: The most seconds to wait; None: no limit.
    timeout: float | None = None


def check_keeps(queue: QueueInfo, cannot: str, remedy: str = "") -> None:
    """
    Raise `BadOption` for a rendezvous, whose loads wait until their messages are fired.

    *cannot*: why this load cannot wait for that. *remedy*: an alternative to a change of the queue.
    """
    if queue.settings.is_rendezvous:
        raise BadOption(
            f"queue {queue.name!r} keeps no messages (max_size=0), so a load waits until they are "
            f"fired, which {cannot}; {remedy and f'{remedy}, or '}raise max_size"
        )


def check_capacity(
    connection: Connection,
    queue: QueueInfo,
    staged: Sequence[Staged],
    waiter: int | None = None,
    overflow: str | None = None,
) -> Amount | None:
    """
    Check that a load fits, and reserve its capacity until the transaction ends.

    *waiter* is the number of the load in the waiting line, or None outside of it. *overflow* is as
    in `OnFull`. Returns how much of a ring has to be evicted for the load, if any. Raises
    `CapacityExceeded` and `QueueDeactivated`.
    """
    if not queue.settings.is_bounded or not staged:
        # What adds nothing takes no room from those in line.
        return None
    named_locks.lock_room(connection, queue.id)
    usage = read_usage(connection, queue)
    load = amount_of(staged)
    if (overflow or usage.settings.overflow) == "ring":
        return _check_ring(connection, queue, usage, load)
    if not can_ever_fit(usage, load):
        raise CapacityExceeded(queue, _too_large_message(queue, usage, load), can_wait=False)
    number = waiters.LAST if waiter is None else waiter
    ahead = waiters.ahead(connection, queue.id, waiters.LOAD, number)
    must_wait = usage.settings.is_rendezvous and waiter is None
    if ahead or must_wait or not fits(usage, load):
        raise CapacityExceeded(queue, full_message(queue, usage, load, ahead))
    return None


def amount_of(staged: Sequence[Staged]) -> Amount:
    """Return the messages and bytes of staged segments."""
    return Amount(
        sum(segment.messages for segment in staged),
        sum(segment.bytes * segment.messages // max(segment.rows, 1) for segment in staged),
    )


def fits(usage: Usage, load: Amount) -> bool:
    """
    Return whether a load fits now. A rendezvous always has capacity for the first in line.

    A load that adds nothing, such as one that only merges, fits even if messages that came back
    exceed the bound.
    """
    return usage.settings.is_rendezvous or all(
        left is None or not more or more <= left
        for left, more in zip(_free(usage), (load.messages, load.bytes), strict=True)
    )


def can_ever_fit(usage: Usage, load: Amount) -> bool:
    """Return whether a load would fit into the queue if it were empty."""
    return fits(replace(usage, held=Amount(0, 0)), load)


def _free(usage: Usage) -> tuple[int | None, int | None]:
    """Return how many messages and bytes there is room for; None: any."""
    bounds, held = usage.settings, usage.held
    return (
        None if bounds.max_size is None else bounds.max_size - held.messages,
        None if bounds.max_bytes is None else bounds.max_bytes - held.bytes,
    )


def limit_to_capacity(
    connection: Connection, queue: QueueInfo, request: FireRequest
) -> FireRequest | None:
    """
    Limit a request for sidelined messages to main's free capacity; None if there is none.

    A ring is full as a rule, and a rendezvous always. So neither limits it: the next load into the
    ring drops the oldest messages, and the messages of a rendezvous wait for a consumer.
    """
    if not queue.settings.is_bounded:
        return request
    named_locks.lock_room(connection, queue.id)
    usage = read_usage(connection, queue)
    if usage.settings.overflow == "ring" or usage.settings.is_rendezvous:
        return request
    messages, size = _free(usage)
    if any(left is not None and left <= 0 for left in (messages, size)):
        return None
    return replace(
        request,
        max_messages=least(request.max_messages, messages),
        max_bytes=least(request.max_bytes, size),
    )


def within_byte_limit(request: FireRequest, taken: Sequence[Taken]) -> bool:
    """Return whether slices keep the byte limit of a request; a single message may exceed it."""
    size = sum(piece.bytes_of(rows) for piece, rows in taken)
    return request.max_bytes is None or size <= request.max_bytes


def take_fitting(
    connection: Connection,
    queue: QueueInfo,
    request: FireRequest,
    candidates: Candidates | None,
) -> list[Taken] | None:
    """Lock sidelined messages for which main has room, and return them; None: it has none."""
    fitting = limit_to_capacity(connection, queue, request)
    if fitting is None:
        return None
    taken = acquire(connection, fitting, "wait", candidates).taken
    # A firing takes one message that is larger than its limit; a full queue does not.
    return taken if within_byte_limit(fitting, taken) else None


def full_message(queue: QueueInfo, usage: Usage, load: Amount, ahead: int = 0) -> str:
    """Return the error message for a load that does not fit now."""
    if usage.settings.is_rendezvous:
        return (
            f"queue {queue.name!r} keeps no messages (max_size=0), and no consumer fires now; fire "
            "from another thread or process, or wait longer with timeout"
        )
    order = f", after {_counted(ahead, 'other load')} in line" if ahead else ""
    return (
        f"queue {queue.name!r} is full ({_bounds(usage)}): it holds {_shown(usage, usage.held)}, "
        f"waiting or {_busy(usage)}, and a load of {_shown(usage, load)} does not fit{order}; "
        f"{'fire' if usage.settings.has_room_on_fire else 'fire and delete'} messages, wait longer "
        "with timeout, or raise the bound"
    )


def _check_ring(
    connection: Connection, queue: QueueInfo, usage: Usage, load: Amount
) -> Amount | None:
    if fits(usage, load):
        return None
    max_size, max_bytes = usage.settings.max_size, usage.settings.max_bytes
    staying = unevictable(connection, queue.id, usage.settings)
    # If a load is larger than the ring, its newest messages stay.
    least = Amount(
        load.messages if max_size is None else min(load.messages, max_size),
        load.bytes if max_bytes is None else min(load.bytes, max_bytes),
    )
    if not fits(replace(usage, held=staying), least):
        raise CapacityExceeded(
            queue,
            f"queue {queue.name!r} is full ({_bounds(usage)}): {_shown(usage, staying)} "
            f"{_busy(usage)} or damaged cannot be dropped for a load of {_shown(usage, load)}; "
            f"delete or {'reset' if usage.settings.has_room_on_fire else 'reload'} messages "
            f"{_busy(usage)}, or raise the bound",
            can_wait=False,
        )
    messages, size = _free(usage)
    return Amount(
        messages=0 if messages is None else max(load.messages - messages, 0),
        bytes=0 if size is None else max(load.bytes - size, 0),
    )


def _too_large_message(queue: QueueInfo, usage: Usage, load: Amount) -> str:
    return (
        f"queue {queue.name!r} never has room for a load of {_shown(usage, load)}, with "
        f"{_bounds(usage)}; load fewer at a time (from a stream: maxMessagesPerTrigger of its "
        "source), or raise the bound"
    )


def _bounds(usage: Usage) -> str:
    settings = usage.settings
    bounds = [] if settings.max_size is None else [f"max_size={settings.max_size}"]
    if settings.max_bytes is not None:
        bounds.append(f"max_bytes={settings.max_bytes}")
    return " and ".join(bounds)


def _busy(usage: Usage) -> str:
    """Return the word for the messages in flight that count."""
    return "kept" if usage.settings.has_room_on_fire else "in flight"


def _shown(usage: Usage, amount: Amount) -> str:
    """Show an amount in the units in which the queue is bounded."""
    parts = []
    if usage.settings.max_size is not None:
        parts.append(_counted(amount.messages, "message"))
    if usage.settings.max_bytes is not None:
        parts.append(_counted(amount.bytes, "byte"))
    return " and ".join(parts)


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def least(*limits: int | None) -> int | None:
    """Return the least of some limits; None: there is no limit."""
    return min((limit for limit in limits if limit is not None), default=None)
