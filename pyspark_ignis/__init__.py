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
    # `X as X` says that X is exported.
    from pyspark_ignis.consuming import consume as consume
    from pyspark_ignis.consuming_many import consume_many as consume_many
    from pyspark_ignis.listening import BatchReport as BatchReport
    from pyspark_ignis.listening import listener as listener
    from pyspark_ignis.managed_query import QueueState as QueueState
    from pyspark_ignis.manager import IgnisManager as IgnisManager
    from pyspark_ignis.manager import QueueStats as QueueStats
    from pyspark_ignis.query_plan import consumer_of as consumer_of
    from pyspark_ignis.source import DefaultSource as DefaultSource
    from pyspark_ignis.source import IgnisDataSource as IgnisDataSource
    from pyspark_ignis.tuning import tuned as tuned
    from queue_core.handling.handler import batch_handler as batch_handler
    from queue_core.handling.results import Later as Later
    from queue_core.handling.results import Reject as Reject
    from queue_core.values.backoff import constant as constant
    from queue_core.values.backoff import exponential as exponential
    from queue_core.values.limits import Limit as Limit
    from queue_core.values.limits import limit as limit
    from queue_core.values.retry import Retry as Retry

#: The module that defines each public name.
_HOMES = {
    "BatchReport": "pyspark_ignis.listening",
    "DefaultSource": "pyspark_ignis.source",
    "IgnisDataSource": "pyspark_ignis.source",
    "IgnisManager": "pyspark_ignis.manager",
    "Later": "queue_core.handling.results",
    "Limit": "queue_core.values.limits",
    "QueueState": "pyspark_ignis.managed_query",
    "QueueStats": "pyspark_ignis.manager",
    "Reject": "queue_core.handling.results",
    "Retry": "queue_core.values.retry",
    "batch_handler": "queue_core.handling.handler",
    "constant": "queue_core.values.backoff",
    "consume": "pyspark_ignis.consuming",
    "consume_many": "pyspark_ignis.consuming_many",
    "consumer_of": "pyspark_ignis.query_plan",
    "exponential": "queue_core.values.backoff",
    "limit": "queue_core.values.limits",
    "listener": "pyspark_ignis.listening",
    "tuned": "pyspark_ignis.tuning",
}

if not TYPE_CHECKING:  # which would take only names that it can read here
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyspark_ignis' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
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
    return sorted({*globals(), *_HOMES})
