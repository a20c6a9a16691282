"""Imports for which a query waits, without searches for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """
    Import modules without the garbage collector, which would find next to nothing in them.

    Otherwise it searches all modules once or more while a query starts, Spark's modules too.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        # The program controls the collector by itself.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Together these count every object as old, so that no full collection is due soon.
        gc.freeze()
        gc.unfreeze()
        gc.enable()
