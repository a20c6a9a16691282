"""What a user says of a pool, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from queue_core.catalog.interests import claim_of
from queue_core.errors import BadOption, SchemaMismatch
from queue_core.handlers.contract import DEFAULT_METADATA
from queue_core.handlers.payloads import Payload
from queue_core.model import magazine_of
from queue_core.names import nearest
from queue_core.schema import METADATA
from queue_core.selection.selection import Selection
from queue_core.settings import MAX_CONCURRENCY, is_whole

if TYPE_CHECKING:
    from queue_core.queue import Queue

_MOST_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """What a pool is to do."""

    queues: Sequence[Queue]
    handler: Any
    payload: Payload | None
    #: What handlers are given; none: the queues' own columns and `DEFAULT_METADATA`.
    columns: Sequence[str] | None
    concurrency: int | None
    batch: int
    magazine: str
    selector: str | None
    order_by: str | None
    priority: int | None
    max_in_flight: int | None
    exclusive: bool
    single_active: bool
    browse: bool

    @property
    def workers(self) -> int:
        """How many workers there are at first."""
        if self.browse and self.concurrency is None:
            # In order.
            return 1
        if self.concurrency is not None:
            return self.concurrency
        return min(queue.info.settings.concurrency for queue in self.queues)

    @property
    def claim(self) -> str:
        """Whether it shares its queues with others."""
        return claim_of(exclusive=self.exclusive, single_active=self.single_active)

    @property
    def may_fire_ahead(self) -> bool:
        """Whether to fire messages that no worker has asked for: where nothing may come first."""
        chooses = self.selector is not None or self.order_by is not None
        yields = self.priority is not None or self.single_active
        return not (chooses or yields or self.max_in_flight)

    @property
    def read(self) -> list[str]:
        """The columns that are read: those for the handler, and the message's id."""
        own = self.queues[0].schema.names
        if self.payload is not None and not self.payload.with_metadata:
            wanted = [self.payload.column]
        elif self.columns is None:
            wanted = [*own, *DEFAULT_METADATA]
        else:
            wanted = list(self.columns)
        if self.payload is not None:
            wanted.append(self.payload.column)
        return list(dict.fromkeys([*wanted, "_message_id"]))


def checked(order: PoolConfig) -> PoolConfig:
    """The order, if it can be carried out; raises `BadOption`, `BadSelector`, `SchemaMismatch`."""
    if not order.queues:
        raise BadOption("queue: name at least one")
    if not callable(order.handler):
        raise BadOption(
            f"handler={order.handler!r}: give a function of one message, or one marked by "
            "batch_handler"
        )
    magazine_of(order.magazine)
    _check_whole("batch", order.batch, 1)
    _check_whole("concurrency", order.concurrency, 0, MAX_CONCURRENCY)
    _check_whole("max_in_flight", order.max_in_flight, 1)
    _check_whole("priority", order.priority, -_MOST_PRIORITY, _MOST_PRIORITY)
    if order.exclusive and order.single_active:
        raise BadOption("exclusive and single_active: an exclusive consumer has no spares")
    if order.browse and (order.exclusive or order.single_active or order.max_in_flight):
        raise BadOption("browse: who takes nothing is neither exclusive, nor active, nor on credit")
    if order.browse and (order.selector is not None or order.order_by is not None):
        raise BadOption("browse: every message is shown; use no selector and no order_by")
    _check_columns(order)
    for queue in order.queues:
        # Of each its own: they may have different columns.
        Selection.parse([queue.info], queue.store.storage.uri, order.selector, order.order_by)
    return order


def _check_columns(order: PoolConfig) -> None:
    payload = order.payload
    if isinstance(order.columns, str):
        raise BadOption(f"columns={order.columns!r}: give a list of column names")
    if order.columns is not None and payload is not None and not payload.with_metadata:
        raise BadOption(
            "columns: with a payload, the handler is given no other columns; use with_metadata=True"
        )
    for queue in order.queues:
        there = pa.schema([*queue.schema, *METADATA])
        for column in order.read:
            if column not in there.names:
                raise SchemaMismatch(
                    f"queue {queue.name} has no column {column!r}"
                    f"{nearest(str(column), there.names)}; it has {', '.join(there.names)}"
                )
        if payload is not None:
            kind = there.field(payload.column).type
            if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
                raise BadOption(f"payload={payload.column!r} is {kind}, not string or binary")


def _check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    if value is None:
        return
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise BadOption(f"{name}={value!r}: use a whole number, {bounds}")
