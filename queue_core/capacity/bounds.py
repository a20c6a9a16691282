"""Room: whether a bounded queue takes a load, decided within the load's own transaction.

Main holds at most `max_size` messages and `max_bytes` bytes, waiting or in flight: a message has
its room until it is deleted, expires or goes to the sideline. Guard: whoever brings messages into a
bounded queue takes a lock of the queue's own first, before any other, and counts then; what others
take away meanwhile leaves more room than was counted. Queues without bounds pay for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from queue_core.catalog import dialect, usage, waiters
from queue_core.catalog.usage import Amount, Usage
from queue_core.model import QueueInfo, Staged
from queue_core.plan import Taken
from queue_core.selection.request import FireRequest


class CapacityExceeded(Exception):
    """A load finds no room; ends its transaction. *ever* tells whether it may find some later."""

    def __init__(self, message: str, *, ever: bool = True) -> None:
        super().__init__(message)
        self.ever = ever


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFull:
    """What a load does that finds no room."""

    #: ``block``, ``fail`` or ``ring``; None: as the queue's settings say.
    overflow: str | None = None
    #: Seconds to wait at most; None: until there is room.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """What the oldest must make room for, once a load is in a ring."""

    messages: int
    bytes: int


def find_room(
    connection: Connection,
    queue: QueueInfo,
    staged: Sequence[Staged],
    waiter: int | None = None,
    overflow: str | None = None,
) -> Overrun | None:
    """
    See that there is room for a load, and keep it; how much of a ring has to go for it, if any.

    *waiter* is the number of a load that stands in line; *overflow* that of `WhenFull`. Raises
    `NoRoom` and `QueueDeactivated`.
    """
    if not queue.settings.is_bounded:
        return None
    dialect.hold_room(connection, queue.id)
    room = usage.look(connection, queue)
    load = amount(staged)
    if (overflow or room.settings.overflow) == "ring":
        return _in_ring(connection, queue, room, load)
    if not fits_ever(room, load):
        raise CapacityExceeded(_too_large(queue, room, load), ever=False)
    ahead = waiters.ahead(
        connection, queue.id, waiters.LOAD, waiters.LAST if waiter is None else waiter
    )
    if ahead or not fits(room, load) or (room.settings.is_rendezvous and waiter is None):
        raise CapacityExceeded(full(queue, room, load, ahead))
    return None


def amount(staged: Sequence[Staged]) -> Amount:
    """How much room staged segments take."""
    return Amount(
        sum(segment.messages for segment in staged),
        sum(segment.bytes * segment.messages // max(segment.rows, 1) for segment in staged),
    )


def fits(room: Usage, load: Amount) -> bool:
    """Whether there is room for so much now; a rendezvous holds one load, which is being met."""
    size, most = room.settings.max_size, room.settings.max_bytes
    if room.settings.is_rendezvous:
        return True
    return (size is None or room.there.messages + load.messages <= size) and (
        most is None or room.there.bytes + load.bytes <= most
    )


def fits_ever(room: Usage, load: Amount) -> bool:
    """Whether there would be room for so much if nothing else were there."""
    return fits(replace(room, there=Amount(0, 0)), load)


def narrowed(connection: Connection, queue: QueueInfo, wanted: FireRequest) -> FireRequest | None:
    """What may be brought back from the sideline: as much as there is room for; None: nothing."""
    if not queue.settings.is_bounded:
        return wanted
    dialect.hold_room(connection, queue.id)
    room = usage.look(connection, queue)
    left = [
        None if bound is None else bound - there
        for bound, there in (
            (room.settings.max_size, room.there.messages),
            (room.settings.max_bytes, room.there.bytes),
        )
    ]
    if any(free is not None and free <= 0 for free in left):
        return None
    return replace(
        wanted,
        max_messages=_least(wanted.max_messages, left[0]),
        max_bytes=_least(wanted.max_bytes, left[1]),
    )


def within(wanted: FireRequest, taken: Sequence[Taken]) -> bool:
    """Whether what was taken keeps the limit of bytes, as one message alone may not."""
    size = sum(piece.bytes_of(rows) for piece, rows in taken)
    return wanted.max_bytes is None or size <= wanted.max_bytes


def full(queue: QueueInfo, room: Usage, load: Amount, ahead: int = 0) -> str:
    """What to tell whoever finds no room."""
    if room.settings.is_rendezvous:
        return (
            f"queue {queue.name!r} keeps no message (max_size=0), and nobody fires now; fire from "
            "it elsewhere, or wait longer with timeout"
        )
    before = f", after {ahead} other loads that wait" if ahead else ""
    return (
        f"queue {queue.name!r} is full: of {_bounds(room)} it holds {_shown(room, room.there)}, "
        f"waiting or in flight, and a load of {_shown(room, load)} does not fit{before}; fire and "
        "delete some, wait longer with timeout, or raise the bound"
    )


def _in_ring(connection: Connection, queue: QueueInfo, room: Usage, load: Amount) -> Overrun | None:
    if fits(room, load):
        return None
    size, most = room.settings.max_size, room.settings.max_bytes
    held = usage.held(connection, queue.id)
    # Of a load that is larger than the ring, the newest messages stay.
    messages = load.messages if size is None else min(load.messages, size)
    some = Amount(messages, load.bytes if most is None else min(load.bytes, most))
    if not fits(replace(room, there=held), some):
        raise CapacityExceeded(
            f"queue {queue.name!r} is full: of {_bounds(room)} it holds {_shown(room, held)} "
            f"in flight or damaged, which cannot be dropped for a load of {_shown(room, load)}; "
            "delete or reload what is in flight, or raise the bound",
            ever=False,
        )
    return Overrun(
        messages=0 if size is None else max(room.there.messages + load.messages - size, 0),
        bytes=0 if most is None else max(room.there.bytes + load.bytes - most, 0),
    )


def _too_large(queue: QueueInfo, room: Usage, load: Amount) -> str:
    return (
        f"queue {queue.name!r} never has room for a load of {_shown(room, load)}, with "
        f"{_bounds(room)}; load fewer at a time (from a stream: maxMessagesPerTrigger of its "
        "source), or raise the bound"
    )


def _bounds(room: Usage) -> str:
    size, most = room.settings.max_size, room.settings.max_bytes
    told = [] if size is None else [f"max_size={size}"]
    return " and ".join(told if most is None else [*told, f"max_bytes={most}"])


def _shown(room: Usage, what: Amount) -> str:
    """In the units in which the queue is bounded."""
    told = [] if room.settings.max_size is None else [_counted(what.messages, "message")]
    if room.settings.max_bytes is not None:
        told.append(_counted(what.bytes, "byte"))
    return " and ".join(told)


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _least(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None)
