"""A sharded message queue on Arrow segments and a SQL catalog, without Spark.

The names in `__all__` are the public surface: they stay, or the changelog says how they change.
They are all errors, and the names below, which stand there for type checkers and with their homes.
Every other module may move. Each name is resolved on first use: executors read segments, and must
not wait for the import of a SQL library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from queue_core import errors

__version__ = "0.1.0"

if TYPE_CHECKING:
    # `X as X` says that X is exported.
    from queue_core.catalog.records.breakers import BreakerSwitch as BreakerSwitch
    from queue_core.consumers.consumer import SuspendReason as SuspendReason
    from queue_core.consumers.trace import Step as Step
    from queue_core.consumers.trace import Trace as Trace
    from queue_core.consumers.trace import TracedStep as TracedStep
    from queue_core.consumers.trace import tracing as tracing
    from queue_core.errors import *  # noqa: F403
    from queue_core.handling.breaker import Breaker as Breaker
    from queue_core.handling.contract import MagazineHandler as MagazineHandler
    from queue_core.handling.handler import batch_handler as batch_handler
    from queue_core.handling.results import Later as Later
    from queue_core.handling.results import Reject as Reject
    from queue_core.policies.aggregates import Take as Take
    from queue_core.policies.builtin import Annihilate as Annihilate
    from queue_core.policies.builtin import Confirm as Confirm
    from queue_core.policies.builtin import DropDuplicates as DropDuplicates
    from queue_core.policies.builtin import Latest as Latest
    from queue_core.policies.builtin import Merge as Merge
    from queue_core.policies.builtin import MergeAdjacent as MergeAdjacent
    from queue_core.policies.checks import Vectorised as Vectorised
    from queue_core.policies.checks import per_message as per_message
    from queue_core.policies.checks import vectorised as vectorised
    from queue_core.policies.decisions import Decision as Decision
    from queue_core.pool.pool import ConsumerPool as ConsumerPool
    from queue_core.pool.pressure import Pressure as Pressure
    from queue_core.pool.target import ConsumerTarget as ConsumerTarget
    from queue_core.pool.target import TargetConsumer as TargetConsumer
    from queue_core.queue.admin import QueueAdmin as QueueAdmin
    from queue_core.queue.queue import Queue as Queue
    from queue_core.queue.within import QueueInTransaction as QueueInTransaction
    from queue_core.segments.buffers import Buffer as Buffer
    from queue_core.selector.by_function import Predicate as Predicate
    from queue_core.store import Store as Store
    from queue_core.support.trace_context import traced_handler as traced_handler
    from queue_core.upkeep.administration import StoreAdmin as StoreAdmin
    from queue_core.upkeep.backup.backup import Backup as Backup
    from queue_core.upkeep.backup.restore import Restored as Restored
    from queue_core.values.backoff import constant as constant
    from queue_core.values.backoff import exponential as exponential
    from queue_core.values.ids import IdSet as IdSet
    from queue_core.values.limits import Limit as Limit
    from queue_core.values.limits import limit as limit
    from queue_core.values.model import Consumer as Consumer
    from queue_core.values.model import Extent as Extent
    from queue_core.values.model import Ticket as Ticket
    from queue_core.values.outcomes import Settlement as Settlement
    from queue_core.values.retry import Retry as Retry
    from queue_core.values.schema import METADATA as METADATA
    from queue_core.values.settings import QueueSettings as QueueSettings
    from queue_core.values.views import VIEWS as VIEWS
    from queue_core.verbs.operator.chosen import Chosen as Chosen
    from queue_core.waiting.firing import Firing as Firing
    from queue_core.watching.exporting import opentelemetry_instruments as opentelemetry_instruments
    from queue_core.watching.exporting import prometheus_collector as prometheus_collector

#: The module that defines each public name.
_HOMES = {
    **{name: "queue_core.errors" for name, kind in vars(errors).items() if isinstance(kind, type)},
    "Annihilate": "queue_core.policies.builtin",
    "Backup": "queue_core.upkeep.backup.backup",
    "Breaker": "queue_core.handling.breaker",
    "BreakerSwitch": "queue_core.catalog.records.breakers",
    "Buffer": "queue_core.segments.buffers",
    "Chosen": "queue_core.verbs.operator.chosen",
    "Confirm": "queue_core.policies.builtin",
    "Consumer": "queue_core.values.model",
    "ConsumerPool": "queue_core.pool.pool",
    "ConsumerTarget": "queue_core.pool.target",
    "Decision": "queue_core.policies.decisions",
    "DropDuplicates": "queue_core.policies.builtin",
    "Extent": "queue_core.values.model",
    "Firing": "queue_core.waiting.firing",
    "IdSet": "queue_core.values.ids",
    "Later": "queue_core.handling.results",
    "Latest": "queue_core.policies.builtin",
    "Limit": "queue_core.values.limits",
    "METADATA": "queue_core.values.schema",
    "MagazineHandler": "queue_core.handling.contract",
    "Merge": "queue_core.policies.builtin",
    "MergeAdjacent": "queue_core.policies.builtin",
    "Predicate": "queue_core.selector.by_function",
    "Pressure": "queue_core.pool.pressure",
    "Queue": "queue_core.queue.queue",
    "QueueAdmin": "queue_core.queue.admin",
    "QueueInTransaction": "queue_core.queue.within",
    "QueueSettings": "queue_core.values.settings",
    "Reject": "queue_core.handling.results",
    "Restored": "queue_core.upkeep.backup.restore",
    "Retry": "queue_core.values.retry",
    "Settlement": "queue_core.values.outcomes",
    "Step": "queue_core.consumers.trace",
    "Store": "queue_core.store",
    "StoreAdmin": "queue_core.upkeep.administration",
    "SuspendReason": "queue_core.consumers.consumer",
    "Take": "queue_core.policies.aggregates",
    "TargetConsumer": "queue_core.pool.target",
    "Ticket": "queue_core.values.model",
    "Trace": "queue_core.consumers.trace",
    "TracedStep": "queue_core.consumers.trace",
    "VIEWS": "queue_core.values.views",
    "Vectorised": "queue_core.policies.checks",
    "batch_handler": "queue_core.handling.handler",
    "constant": "queue_core.values.backoff",
    "exponential": "queue_core.values.backoff",
    "limit": "queue_core.values.limits",
    "opentelemetry_instruments": "queue_core.watching.exporting",
    "per_message": "queue_core.policies.checks",
    "prometheus_collector": "queue_core.watching.exporting",
    "traced_handler": "queue_core.support.trace_context",
    "tracing": "queue_core.consumers.trace",
    "vectorised": "queue_core.policies.checks",
}

if not TYPE_CHECKING:  # which would take only names that it can read here
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'queue_core' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
