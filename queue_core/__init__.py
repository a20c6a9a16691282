"""A sharded message queue on Arrow segments and a SQL catalog; knows nothing of Spark.

The public names are resolved when first used: executors read segments and must not wait for a SQL
library to be imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue_core.errors import IgnisError
    from queue_core.firing import Firing
    from queue_core.handlers.handler import batch_handler
    from queue_core.pool.pool import ConsumerPool
    from queue_core.pool.pressure import Pressure
    from queue_core.queue import Queue
    from queue_core.settings import QueueSettings
    from queue_core.store import Store

_HOMES = {
    "ConsumerPool": "queue_core.pool.pool",
    "Firing": "queue_core.firing",
    "IgnisError": "queue_core.errors",
    "Pressure": "queue_core.pool.pressure",
    "Queue": "queue_core.queue",
    "QueueSettings": "queue_core.settings",
    "Store": "queue_core.store",
    "batch_handler": "queue_core.handlers.handler",
}

__all__ = [
    "ConsumerPool",
    "Firing",
    "IgnisError",
    "Pressure",
    "Queue",
    "QueueSettings",
    "Store",
    "batch_handler",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'queue_core' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
