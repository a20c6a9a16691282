"""Conditions on slices by their holders: who is at work, who is dead, and who keeps messages."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, not_, or_, select

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holders.consumers import IS_KEEPER, awaits, is_alive, reserved
from queue_core.catalog.slices.conditions import (
    IN_FLIGHT,
    WITHIN_ENDS,
    Eligible,
    Rules,
    Stretch,
    ago,
    ends_of,
    in_queue,
)
from queue_core.catalog.tables import slices
from queue_core.values.model import Consumer, Magazine

_HOLDER = select(consumers.c.id).where(consumers.c.id == slices.c.consumer_id)
_HELD_WITHIN: Rules = (
    dialect.one_of_given(slices.c.segment_id, "these"),
    slices.c.queue_id == bindparam("queue"),
    slices.c.magazine == bindparam("magazine"),
    *IN_FLIGHT,
    *WITHIN_ENDS,
)


# Each is built once: the statements of `held_within` are cached by it.
@lru_cache(maxsize=64)
def fired_before(seconds: float) -> Rules:
    """Return the condition of slices that were fired so long ago."""
    return (slices.c.fired_at <= ago(seconds),)


@lru_cache(maxsize=64)
def unattended(dead_after: float) -> Rules:
    """Return the condition of slices that nobody at work holds, and no restart will ask for."""
    return (~_HOLDER.where(or_(_at_work(dead_after), reserved())).exists(),)


def of_dead(name: str, dead_after: float) -> Rules:
    """Return the condition of slices of a consumer that is not at work on them."""
    return (_HOLDER.where(consumers.c.name == name, not_(_at_work(dead_after))).exists(),)


@lru_cache(maxsize=64)
def held_by_few(consumer_id: int) -> Rules:
    """Return the condition of a holder among slices found by their segments; it may hold more."""
    return (dialect.not_indexed(slices.c.consumer_id) == consumer_id,)


def held_within(
    queue_id: int,
    magazine: Magazine,
    stretch: Stretch,
    segments: Collection[int],
    holder: Rules,
) -> Eligible:
    """Return the conditions of slices of segments that a holder has in a part of a queue."""
    given: dict[str, Any] = {"queue": queue_id, "magazine": int(magazine), "these": segments}
    return Eligible((*_HELD_WITHIN, *holder), given | ends_of(stretch))


def of_keepers(dead_after: float, also: Consumer | None = None) -> Rules:
    """Return the condition of slices that dead keepers hold, or the keeper *also*."""
    keepers = IS_KEEPER & (consumers.c.heartbeat_at <= ago(dead_after))
    return _held_by(keepers if also is None else keepers | (consumers.c.id == also.id))


def of_keeper(name: str) -> Rules:
    """Return the condition of slices that the keeper of this name holds."""
    return _held_by(IS_KEEPER & (consumers.c.name == name))


def keepers(connection: Connection) -> Collection[str]:
    """Return the names of all keepers."""
    return connection.scalars(select(consumers.c.name).where(IS_KEEPER)).all()


def dead_holders(
    connection: Connection, queue_id: int, dead_after: float, stuck: Rules
) -> list[int]:
    """
    Return the dead consumers whose stuck messages of main were not counted as lost yet.

    A query counts its own when it starts again. Without heartbeats, nobody knows who is dead, and a
    keeper holds messages for as long as it likes.
    """
    of_dead = _HOLDER.where(
        consumers.c.acknowledged < slices.c.ticket,
        consumers.c.heartbeat_at.is_not(None),
        consumers.c.ack.is_(None),
        not_(IS_KEEPER),
        not_(is_alive(dead_after)),
    )
    here = in_queue(queue_id, Magazine.MAIN)
    found = select(slices.c.consumer_id).where(*here, *stuck, of_dead.exists()).distinct()
    return sorted(connection.scalars(found))


def _at_work(dead_after: float) -> ColumnElement[bool]:
    return and_(is_alive(dead_after), awaits())


def _held_by(which: ColumnElement[bool]) -> Rules:
    holders: Select[int] = select(consumers.c.id).where(which)
    return (slices.c.consumer_id.in_(holders),)
