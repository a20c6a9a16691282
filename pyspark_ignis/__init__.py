"""
ignis for Spark: once this is installed, ``format("ignis")`` works without registration.

The names in `__all__` are the public surface: they stay, or the changelog says how they change.
Every other module may move.

Spark imports this package to find the data source, and one failing import hides all data sources.
Those who need only a part of it must not wait for the rest. So this module imports nothing, and
resolves each name on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_ignis.consuming import consume
    from pyspark_ignis.consuming_many import consume_many
    from pyspark_ignis.listening import BatchReport, listener
    from pyspark_ignis.managed_query import QueueState
    from pyspark_ignis.manager import IgnisManager
    from pyspark_ignis.query_plan import consumer_of
    from pyspark_ignis.queue_stats import QueueStats
    from pyspark_ignis.source import IgnisDataSource
    from pyspark_ignis.source import IgnisDataSource as DefaultSource
    from pyspark_ignis.tuning import tuned
    from queue_core.handling.handler import batch_handler
    from queue_core.handling.results import Later, Reject
    from queue_core.values.backoff import constant, exponential
    from queue_core.values.limits import Limit, limit
    from queue_core.values.retry import Retry

#: The module and the attribute of each public name.
_HOMES = {
    "BatchReport": ("pyspark_ignis.listening", "BatchReport"),
    # Spark looks for this name in packages called ``pyspark_…``.
    "DefaultSource": ("pyspark_ignis.source", "IgnisDataSource"),
    "IgnisDataSource": ("pyspark_ignis.source", "IgnisDataSource"),
    "IgnisManager": ("pyspark_ignis.manager", "IgnisManager"),
    "Later": ("queue_core.handling.results", "Later"),
    "Limit": ("queue_core.values.limits", "Limit"),
    "QueueState": ("pyspark_ignis.managed_query", "QueueState"),
    "QueueStats": ("pyspark_ignis.queue_stats", "QueueStats"),
    "Reject": ("queue_core.handling.results", "Reject"),
    "Retry": ("queue_core.values.retry", "Retry"),
    "batch_handler": ("queue_core.handling.handler", "batch_handler"),
    "constant": ("queue_core.values.backoff", "constant"),
    "consume": ("pyspark_ignis.consuming", "consume"),
    "consume_many": ("pyspark_ignis.consuming_many", "consume_many"),
    "consumer_of": ("pyspark_ignis.query_plan", "consumer_of"),
    "exponential": ("queue_core.values.backoff", "exponential"),
    "limit": ("queue_core.values.limits", "limit"),
    "listener": ("pyspark_ignis.listening", "listener"),
    "tuned": ("pyspark_ignis.tuning", "tuned"),
}

__all__ = [
    "BatchReport",
    "DefaultSource",
    "IgnisDataSource",
    "IgnisManager",
    "Later",
    "Limit",
    "QueueState",
    "QueueStats",
    "Reject",
    "Retry",
    "batch_handler",
    "constant",
    "consume",
    "consume_many",
    "consumer_of",
    "exponential",
    "limit",
    "listener",
    "tuned",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyspark_ignis' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        what = _wrong_pyspark()
        if what is None:
            raise
        # Spark looks for the source in each package: an ImportError would hide all data sources.
        kind = AttributeError if name == "DefaultSource" else ImportError
        raise kind(f"pyspark_ignis needs PySpark 4 or later{what}") from error


def _wrong_pyspark() -> str | None:
    """Return what is wrong with the PySpark of this environment, if anything."""
    try:
        from pyspark import __version__
    except ModuleNotFoundError:
        return (
            ", which is not installed: pip install 'ignis-queue[spark]', or use the Python of your "
            "Spark platform"
        )
    major = int(__version__.partition(".")[0])
    return None if major >= 4 else f"; this is PySpark {__version__}"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
