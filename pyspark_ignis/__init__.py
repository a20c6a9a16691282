"""
ignis for Spark: once this is installed, ``format("ignis")`` works with nothing to register.

Spark imports this in order to find the data source, and one such import that fails hides all data
sources; the command line lives here too, and must not wait for Spark. So nothing is imported here:
the names are resolved when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_ignis.consuming import consume
    from pyspark_ignis.manager import IgnisManager
    from pyspark_ignis.source import IgnisDataSource
    from pyspark_ignis.source import IgnisDataSource as DefaultSource
    from queue_core.handlers.handler import batch_handler

_HOMES = {
    # The name under which Spark looks for a data source in packages called ``pyspark_…``.
    "DefaultSource": ("pyspark_ignis.source", "IgnisDataSource"),
    "IgnisDataSource": ("pyspark_ignis.source", "IgnisDataSource"),
    "IgnisManager": ("pyspark_ignis.manager", "IgnisManager"),
    "batch_handler": ("queue_core.handlers.handler", "batch_handler"),
    "consume": ("pyspark_ignis.consuming", "consume"),
}

__all__ = ["DefaultSource", "IgnisDataSource", "IgnisManager", "batch_handler", "consume"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyspark_ignis' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
