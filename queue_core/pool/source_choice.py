"""Which source a pool has for a queue: one that fires, or one that browses."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.pool.breaking import PoolBreaker
from queue_core.pool.browsing import BrowsingSource
from queue_core.pool.config import PoolConfig
from queue_core.pool.held_bytes import HeldBytes
from queue_core.pool.source import AcquiringSource, MessageSource
from queue_core.queue import Queue
from queue_core.values.model import Consumer, Magazine


def magazine_of(config: PoolConfig, queue: Queue) -> Magazine:
    """Return the magazine of a queue that a pool takes messages from."""
    return queue.opened.demanded(config.demand).magazine


def source_of(
    config: PoolConfig,
    queue: Queue,
    consumer: Consumer,
    on_available: Callable[[], None],
    held: HeldBytes,
    breaker: PoolBreaker | None,
) -> MessageSource:
    """Return the source of a queue of a pool."""
    read = config.contract.read
    if config.browse:
        magazine = magazine_of(config, queue)
        return BrowsingSource(queue, consumer, read, magazine, on_available, held)
    return AcquiringSource(
        queue,
        consumer,
        read,
        config.demand,
        prefetch=config.may_prefetch,
        on_available=on_available,
        held=held,
        retry=config.contract.retry,
        breaker=breaker,
        output=config.output,
    )
