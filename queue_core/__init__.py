"""A sharded message queue on Arrow segments and a SQL catalog, without Spark.

The names in `__all__` are the public surface: they stay, or the changelog says how they change.
Every other module may move. Each name is resolved on first use: executors read segments, and must
not wait for the import of a SQL library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from queue_core.catalog.records.breakers import BreakerSwitch
    from queue_core.consumers.consumer import SuspendReason
    from queue_core.consumers.trace import Step, Trace, TracedStep, tracing
    from queue_core.errors import (
        BadName,
        BadOption,
        BadOutcome,
        BadSelector,
        CatalogForbidden,
        CatalogUnavailable,
        Conflict,
        ConsumerFenced,
        Damaged,
        DamagedBackup,
        DamagedCatalog,
        DamagedSegment,
        FormatTooNew,
        IgnisError,
        Invalid,
        NoSuchQueue,
        NoSuchStore,
        NotLeading,
        OffsetsLost,
        PublicationRefused,
        QueueDeactivated,
        QueueExists,
        QueueFull,
        QueueTaken,
        SchemaMismatch,
        StaleCheckpoint,
        StorageUnavailable,
        SubscriptionDetached,
        Unavailable,
    )
    from queue_core.handling.breaker import Breaker
    from queue_core.handling.contract import MagazineHandler
    from queue_core.handling.handler import batch_handler
    from queue_core.handling.results import Later, Reject
    from queue_core.policies.aggregates import Take
    from queue_core.policies.builtin import (
        Annihilate,
        Confirm,
        DropDuplicates,
        Latest,
        Merge,
        MergeAdjacent,
    )
    from queue_core.policies.checks import Vectorised, per_message, vectorised
    from queue_core.policies.decisions import Decision
    from queue_core.pool.pool import ConsumerPool
    from queue_core.pool.pressure import Pressure
    from queue_core.pool.target import ConsumerTarget, TargetConsumer
    from queue_core.queue.admin import QueueAdmin
    from queue_core.queue.queue import Queue
    from queue_core.queue.within import QueueInTransaction
    from queue_core.segments.buffers import Buffer
    from queue_core.selector.by_function import Predicate
    from queue_core.store import Store
    from queue_core.support.trace_context import traced_handler
    from queue_core.upkeep.administration import StoreAdmin
    from queue_core.upkeep.backup.backup import Backup
    from queue_core.upkeep.backup.replacement import Restored
    from queue_core.values.backoff import constant, exponential
    from queue_core.values.ids import IdSet
    from queue_core.values.limits import Limit, limit
    from queue_core.values.model import Consumer, Extent, Ticket
    from queue_core.values.outcomes import Settlement
    from queue_core.values.retry import Retry
    from queue_core.values.schema import METADATA
    from queue_core.values.settings import QueueSettings
    from queue_core.values.views import VIEWS
    from queue_core.verbs.operator.chosen import Chosen
    from queue_core.waiting.firing import Firing
    from queue_core.watching.exporting import opentelemetry_instruments, prometheus_collector

#: The module that defines each public name, except for those of errors.
_HOMES = {
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
    "Restored": "queue_core.upkeep.backup.replacement",
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

__all__ = [
    "Annihilate",
    "Backup",
    "BadName",
    "BadOption",
    "BadOutcome",
    "BadSelector",
    "Breaker",
    "BreakerSwitch",
    "Buffer",
    "CatalogForbidden",
    "CatalogUnavailable",
    "Chosen",
    "Confirm",
    "Conflict",
    "Consumer",
    "ConsumerFenced",
    "ConsumerPool",
    "ConsumerTarget",
    "Damaged",
    "DamagedBackup",
    "DamagedCatalog",
    "DamagedSegment",
    "Decision",
    "DropDuplicates",
    "Extent",
    "Firing",
    "FormatTooNew",
    "IdSet",
    "IgnisError",
    "Invalid",
    "Later",
    "Latest",
    "Limit",
    "METADATA",
    "MagazineHandler",
    "Merge",
    "MergeAdjacent",
    "NoSuchQueue",
    "NoSuchStore",
    "NotLeading",
    "OffsetsLost",
    "Predicate",
    "Pressure",
    "PublicationRefused",
    "Queue",
    "QueueAdmin",
    "QueueDeactivated",
    "QueueExists",
    "QueueFull",
    "QueueInTransaction",
    "QueueSettings",
    "QueueTaken",
    "Reject",
    "Restored",
    "Retry",
    "SchemaMismatch",
    "Settlement",
    "StaleCheckpoint",
    "Step",
    "StorageUnavailable",
    "Store",
    "StoreAdmin",
    "SubscriptionDetached",
    "SuspendReason",
    "Take",
    "TargetConsumer",
    "Ticket",
    "Trace",
    "TracedStep",
    "Unavailable",
    "VIEWS",
    "Vectorised",
    "batch_handler",
    "constant",
    "exponential",
    "limit",
    "opentelemetry_instruments",
    "per_message",
    "prometheus_collector",
    "traced_handler",
    "tracing",
    "vectorised",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'queue_core' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "queue_core.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
