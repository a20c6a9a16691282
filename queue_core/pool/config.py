"""`PoolConfig`: the arguments of a pool, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from queue_core.catalog.holders.interests import claim_of
from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker, name_for
from queue_core.handling.columns import check_columns, check_payload, handler_columns
from queue_core.handling.handler import BatchHandler, RowHandler
from queue_core.handling.payloads import ObjectPayload, Payload
from queue_core.queue import Queue
from queue_core.selection.selection import Selection
from queue_core.upkeep.tasks.registry import TASKS, check_tasks
from queue_core.values.model import BY_SHARD, GLOBAL, magazine_of
from queue_core.values.schema import METADATA
from queue_core.values.settings import MAX_CONCURRENCY, is_whole

if TYPE_CHECKING:
    from queue_core.selection.selection import AnySelector

_MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """The arguments of a pool; `ConsumerPool` describes them."""

    queues: Sequence[Queue]
    handler: RowHandler | BatchHandler
    payload: Payload | ObjectPayload | None
    columns: Sequence[str] | None
    concurrency: int | None
    batch: int
    magazine: str
    selector: AnySelector | None
    order_by: str | None
    order: str
    priority: int | None
    max_bytes: int
    max_in_flight: int | None
    exclusive: bool
    single_active: bool
    browse: bool
    transactional: bool = False
    tasks: Sequence[str] | None = None
    breaker: Breaker | None = None

    @property
    def side_tasks(self) -> tuple[str, ...]:
        """The side tasks that the pool runs: by default all, and none for a browser."""
        if self.tasks is None:
            return () if self.browse else TASKS
        return tuple(self.tasks)

    @property
    def workers(self) -> int:
        """The number of workers at the start."""
        if self.browse and self.concurrency is None:
            # Several workers would not keep the messages in order.
            return 1
        if self.concurrency is not None:
            return min(self.concurrency, MAX_CONCURRENCY)
        return min(queue.info.settings.concurrency for queue in self.queues)

    @property
    def claim(self) -> str:
        """How the pool shares its queues with other consumers."""
        return claim_of(exclusive=self.exclusive, single_active=self.single_active)

    @property
    def may_prefetch(self) -> bool:
        """Whether to fire messages before workers need them: not if others may precede."""
        selects = self.selector is not None or self.order_by is not None
        yields = self.priority is not None or self.single_active
        return not (selects or yields or self.max_in_flight)

    def read(self, names: Sequence[str]) -> list[str]:
        """
        Return the columns to read: those for the handler, and the message's id.

        *names* are those of the messages, since a queue can get more columns.
        """
        return handler_columns(names, self.columns, self.payload)

    @property
    def breaker_name(self) -> str:
        """The name of the breaker: by default, the names of the queues."""
        given = None if self.breaker is None else self.breaker.name
        return given or name_for([queue.name for queue in self.queues])


def checked(config: PoolConfig) -> PoolConfig:
    """Return *config* if it is valid; raises `BadOption`, `BadSelector` or `SchemaMismatch`."""
    if not config.queues:
        raise BadOption("queue is empty: name at least one queue")
    if not callable(config.handler):
        raise BadOption(
            f"handler={config.handler!r}: give a function of one message, one marked by "
            "batch_handler, or an object with a method handle"
        )
    magazine_of(config.magazine)
    names = [queue.name for queue in config.queues]
    for name in set(names):
        if names.count(name) > 1:
            raise BadOption(
                f"queue {name!r} is named more than once; use one pool for main and one for the "
                "sideline"
            )
    if config.tasks is not None:
        check_tasks(config.tasks)
    _check_whole("batch", config.batch, 1)
    _check_whole("concurrency", config.concurrency, 0)
    _check_whole("max_bytes", config.max_bytes, 1)
    _check_whole("max_in_flight", config.max_in_flight, 1)
    _check_whole("priority", config.priority, -_MAX_PRIORITY, _MAX_PRIORITY)
    if config.exclusive and config.single_active:
        raise BadOption(
            "exclusive and single_active cannot be combined: an exclusive pool has no spares"
        )
    if config.browse and (config.exclusive or config.single_active or config.max_in_flight):
        raise BadOption(
            "browse=True cannot be combined with exclusive, single_active or max_in_flight: a "
            "browser takes no messages"
        )
    if config.browse and (config.selector is not None or config.order_by is not None):
        raise BadOption(
            "browse=True cannot be combined with selector or order_by: a browser sees every message"
        )
    if config.transactional and config.browse:
        raise BadOption(
            "browse=True cannot be combined with transactional: a browser settles no messages"
        )
    if config.breaker is not None and not isinstance(config.breaker, Breaker):
        raise BadOption(f"breaker={config.breaker!r}: give a Breaker, such as Breaker(of=50)")
    if config.breaker is not None and config.browse:
        raise BadOption("browse=True cannot be combined with breaker: a browser takes no messages")
    if config.breaker is not None:
        config.breaker.asks()
    if config.order != BY_SHARD and config.browse:
        raise BadOption(
            f"browse=True cannot be combined with order={config.order!r}: a browser sees the "
            "messages shard by shard"
        )
    if config.order == GLOBAL and len(config.queues) > 1:
        raise BadOption(
            f"order={GLOBAL!r} cannot be combined with several queues ({', '.join(names)}): each "
            "firing of a pool takes from one; use a pool for each queue"
        )
    read = config.read(config.queues[0].schema.names)
    for queue in config.queues:
        # Each queue is checked, since their columns may differ.
        columns = pa.schema([*queue.schema, *METADATA])
        if isinstance(config.payload, ObjectPayload):
            config.payload.kind.check_fits(queue.schema, queue.name)
        check_columns([queue.name], columns.names, read)
        if isinstance(config.payload, Payload):
            kind = columns.field(config.payload.column).type
            is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
            check_payload(config.payload.column, str(kind), is_text=is_text)
        Selection.parse(
            [queue.info],
            queue.store.storage.uri,
            config.selector,
            config.order_by,
            order=config.order,
        )
    return config


def _check_whole(name: str, value: int | None, least: int, most: int | None = None) -> None:
    if value is None:
        return
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise BadOption(f"{name}={value!r}: use a whole number, {bounds}")
