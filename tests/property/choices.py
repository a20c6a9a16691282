"""Which messages a firing should choose from, by the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queue_core.values.model import Magazine, State
from tests.property.model import Message, Model

#: Its customers take turns.
FAIR = "fair"
#: At most one message of each customer is in flight.
GROUPED = "grouped"
#: The highest number comes first.
URGENT = "urgent"


class Part(NamedTuple):
    """The messages that a firing may take, by shard and in order, and how many at most."""

    messages: list[Message]
    most: int | None = None


def first_part(
    model: Model,
    queue: str,
    magazine: Magazine,
    eligible: Callable[[Message], bool] = lambda _: True,
    pool: str | None = None,
) -> Part:
    """Return the first part with messages: suspects that were lost among the most, or others."""
    shards = model.waiting(queue, magazine)
    waiting = [message for shard in sorted(shards) for message in shards[shard]]
    if magazine is Magazine.SIDELINE:
        return Part([message for message in waiting if eligible(message)])
    held = model.in_life(pool) if pool is not None else []
    if any(message.lost_among for message in held):
        return Part([])
    sizes = {message.lost_among for message in waiting if message.lost_among}
    heads = _heads(model, queue, waiting)
    for among in sorted(sizes, reverse=True):
        trial = [m for m in heads if m.lost_among == among and eligible(m)]
        if trial:
            return Part([]) if held else Part(trial, max(among // 2, 1))
    return Part([message for message in heads if not message.lost_among and eligible(message)])


def lane_of(message: Message) -> object:
    """Return what keeps the order of messages: the shard; in a fair queue, also the customer."""
    if (message.queue, message.magazine) != (FAIR, Magazine.MAIN):
        return message.shard
    return message.shard, None if message.returned else message.customer


def _heads(model: Model, queue: str, waiting: list[Message]) -> list[Message]:
    """Return the first message of each group without one in flight; all in other queues."""
    if queue != GROUPED:
        return waiting
    taken = {
        (message.shard, message.customer)
        for message in model.messages.values()
        if (message.queue, message.magazine) == (queue, Magazine.MAIN)
        and message.state is State.FIRED
    }
    heads = []
    for message in waiting:
        group = (message.shard, message.customer)
        if group not in taken:
            taken.add(group)
            heads.append(message)
    return heads
