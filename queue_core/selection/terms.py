"""Terms: what the settings of the queues say about a firing, besides its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queue_core.errors import BadOption
from queue_core.values.limits import Limit
from queue_core.values.model import GLOBAL, Magazine, QueueInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the settings of the queues say about a firing."""

    #: Each limit with its queue's id (`limited`); they count only in main.
    limits: tuple[tuple[int, Limit], ...] = ()
    #: The queues that fire by rank (`by_rank`); the others fire from their shards in turn.
    fair: frozenset[int] = frozenset()
    #: The weights of the queues by their ids, in thousandths (`quotas`); empty: their shards
    #: have equal rights.
    weights: Mapping[int, int] = field(default_factory=dict)
    #: Whether a load may wait for it: for room in one of the queues, or until messages are fired.
    makes_room: bool = False
    #: Whether some of them are subscriptions, whose messages may still be in a log; and whether a
    #: message of the log may have expired before it is taken in.
    logged: bool = False
    expires: bool = False
    #: Whether one of the subscriptions has a selector.
    selective: bool = False


def terms_of(
    queues: Sequence[QueueInfo], magazine: Magazine, order_by: str | None, order: str
) -> Terms:
    """Return the terms of a firing; raises `BadOption` if a fair queue is to have another order."""
    makes_room = any(queue.settings.firing_wakes_loads for queue in queues)
    weights = _weights(queues, order_by, order)
    if magazine is not Magazine.MAIN:
        return Terms(weights=weights, makes_room=makes_room)
    return Terms(
        limits=tuple((queue.id, limit) for queue in queues for limit in queue.settings.limits),
        fair=_fair(queues, order_by, order),
        weights=weights,
        makes_room=makes_room,
        logged=any(queue.log_of for queue in queues),
        expires=any(queue.settings.message_expiry for queue in queues if queue.log_of),
        selective=any(queue.settings.selector for queue in queues),
    )


def _fair(queues: Sequence[QueueInfo], order_by: str | None, order: str) -> frozenset[int]:
    """Return the ids of the queues that fire by turns."""
    fair = [queue for queue in queues if queue.settings.fair_by is not None]
    for queue in fair:
        if order_by is not None or order == GLOBAL:
            given = f"order_by={order_by!r}" if order_by is not None else f"order={order!r}"
            raise BadOption(
                f"{given} cannot be combined with fair_by={queue.settings.fair_by!r} of queue "
                f"{queue.name!r}, which says whose message is next; leave it out, or set fair_by "
                "to none"
            )
    return frozenset(queue.id for queue in fair)


def _weights(queues: Sequence[QueueInfo], order_by: str | None, order: str) -> dict[int, int]:
    """Return weights; none if it takes evenly, or if an order over all queues says what is next."""
    weights = {queue.id: round(1000 * queue.settings.weight) for queue in queues}
    ordered = order_by is not None or order == GLOBAL
    return {} if ordered or len(weights) < 2 or set(weights.values()) == {1000} else weights
