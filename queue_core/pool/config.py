"""`PoolConfig`: the arguments of a pool, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queue_core.catalog.holders.interests import claim_of
from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker
from queue_core.handling.contract import Contract
from queue_core.pool.output import check_output
from queue_core.pool.pressure import Pressure
from queue_core.queue import Queue
from queue_core.selection.request import Demand
from queue_core.upkeep.tasks.registry import TASKS
from queue_core.values.durations import check_whole
from queue_core.values.model import BY_SHARD, GLOBAL, Magazine
from queue_core.values.settings import check_count

#: Messages that a worker fires, handles and settles at once by default.
BATCH = 100
_MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """The arguments of a pool; `ConsumerPool` describes them."""

    queues: Sequence[Queue]
    demand: Demand
    contract: Contract
    concurrency: int | None = None
    batch: int = 1
    priority: int | None = None
    max_bytes: int = 1
    max_in_flight: int | None = None
    exclusive: bool = False
    single_active: bool = False
    browse: bool = False
    pressure: Pressure | None = None
    name: str | None = None
    tasks: Sequence[str] | None = None
    breaker: Breaker | None = None
    #: The queue for the rows that the handler returns.
    output: Queue | None = None

    @property
    def side_tasks(self) -> tuple[str, ...]:
        """The side tasks that the pool runs: by default all, and none for a browser."""
        if self.tasks is None:
            return () if self.browse else TASKS
        return tuple(self.tasks)

    @property
    def workers(self) -> int:
        """The wanted number of workers at the start; a pool starts as many of them as it may."""
        if self.concurrency is not None:
            return self.concurrency
        if self.browse:
            # Several workers would not keep the messages in order.
            return 1
        return min(queue.info.settings.concurrency for queue in self.queues)

    @property
    def claim(self) -> str:
        """How the pool shares its queues with other consumers."""
        return claim_of(exclusive=self.exclusive, single_active=self.single_active)

    @property
    def precedes(self) -> bool:
        """
        Whether it may hold other consumers back.

        A browser may not, nor one of the sideline without a priority: others take from main.
        """
        in_main = any(self.magazine_of(queue) is Magazine.MAIN for queue in self.queues)
        return not self.browse and (in_main or self.priority is not None)

    @property
    def yields(self) -> bool:
        """Whether consumers of other processes may precede it."""
        return self.priority is not None or self.single_active

    @property
    def selective(self) -> bool:
        """Whether it leaves messages to others: by its selector, or when its breaker stops them."""
        return self.demand.selector is not None or self.breaker is not None

    @property
    def may_prefetch(self) -> bool:
        """Whether to fire messages before workers need them: not if others may precede."""
        selects = self.demand.selector is not None or self.demand.order_by is not None
        return not (selects or self.yields or self.max_in_flight)

    def magazine_of(self, queue: Queue) -> Magazine:
        """Return the magazine of a queue from which the pool takes."""
        return queue.opened.demanded(self.demand).magazine


def checked(config: PoolConfig) -> PoolConfig:
    """Return *config* if it is valid; raises `BadOption`, `BadSelector` or `SchemaMismatch`."""
    if not config.queues:
        raise BadOption("queue is empty: name at least one queue")
    if not callable(config.contract.handler):
        raise BadOption(
            f"handler={config.contract.handler!r}: give a function of one message, one marked by "
            "batch_handler, or an object with a method handle"
        )
    names = [queue.name for queue in config.queues]
    for name in set(names):
        if names.count(name) > 1:
            raise BadOption(
                f"queue {name!r} is named more than once; use one pool for main and one for the "
                "sideline"
            )
    check_whole("batch", config.batch, 1)
    check_whole("max_bytes", config.max_bytes, 1)
    check_count("max_in_flight", config.max_in_flight)
    if config.concurrency is not None:
        check_whole("concurrency", config.concurrency, 0)
    if config.priority is not None:
        check_whole("priority", config.priority, -_MAX_PRIORITY, _MAX_PRIORITY)
    if config.exclusive and config.single_active:
        raise BadOption(
            "exclusive and single_active cannot be combined: an exclusive pool has no spares"
        )
    if config.browse:
        _check_browser(config)
    if config.breaker is not None and not isinstance(config.breaker, Breaker):
        raise BadOption(f"breaker={config.breaker!r}: give a Breaker, such as Breaker(of=50)")
    if config.breaker is not None:
        config.breaker.asks()
    if config.output is not None:
        _check_output(config, config.output)
    if config.demand.order == GLOBAL and len(config.queues) > 1:
        raise BadOption(
            f"order={GLOBAL!r} cannot be combined with several queues ({', '.join(names)}): each "
            "firing of a pool takes from one; use a pool for each queue"
        )
    read = config.contract.read(config.queues[0].schema.names)
    for queue in config.queues:
        # Each queue is checked, since their columns may differ.
        config.contract.check_queue(queue.name, queue.schema, read)
        config.demand.selection([queue.info])
    return config


def _check_browser(config: PoolConfig) -> None:
    demand = config.demand
    taking = (config.exclusive, config.single_active, config.max_in_flight)
    selecting = demand.selector is not None or demand.order_by is not None
    for is_given, what, why in (
        (any(taking), "exclusive, single_active or max_in_flight", "takes no messages"),
        (selecting, "selector or order_by", "sees every message"),
        (config.contract.transactional, "transactional", "settles no messages"),
        (config.breaker is not None, "breaker", "takes no messages"),
        (config.output is not None, "output", "settles no messages"),
        (demand.order != BY_SHARD, f"order={demand.order!r}", "sees the messages shard by shard"),
    ):
        if is_given:
            raise BadOption(f"browse=True cannot be combined with {what}: a browser {why}")


def _check_output(config: PoolConfig, output: Queue) -> None:
    if config.contract.transactional:
        raise BadOption(
            "transactional=True cannot be combined with output: load the rows in the transaction "
            f"of the call, with store.queue({output.name!r}).within(connection).load(rows)"
        )
    check_output(output)
