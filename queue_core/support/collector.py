"""Keep Python's garbage collector from searching modules, which would delay queries."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """
    Import modules without the garbage collector, which would find next to nothing in them.

    Otherwise it searches all modules once or more while a query starts, Spark's modules too.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        # The program controls the collector by itself, or it passes over what is imported anyway.
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


def collect_rarely() -> None:
    """
    Let the collector look less often, up to `pass_over_all`, in a process that is all of ignis's.

    Imports make many objects that stay, through which it would look again and again.
    """
    global _usual
    _usual = gc.get_threshold()
    gc.set_threshold(_RARE)


def pass_over_all() -> None:
    """
    Let the collector pass over all present objects, and look as often as usual from now on.

    For a process that is all of ignis's. A full collection looks through what the imports left,
    which takes 20 to 90 ms, and it may come within a transaction or while a message waits.
    """
    gc.collect()
    gc.freeze()
    if _usual is not None:
        gc.set_threshold(*_usual)


def pass_over_imports() -> None:
    """
    Let the collector pass over all present objects, if modules were imported since the last call.

    It has an effect only in a Python worker of Spark that serves one task after another. The worker
    searches for garbage after each, and what it searches is modules, which takes 30 ms. So this is
    called at the beginning of a task, when it has no rows yet. Objects are still freed when nothing
    refers to them. Nothing changes if the program controls the collector by itself.
    """
    if _REUSED not in os.environ:
        return
    global _passed_over
    imported = len(sys.modules)
    ours = _passed_over > 0 or not gc.get_freeze_count()
    if gc.isenabled() and ours and imported > _passed_over:
        gc.freeze()
        _passed_over = imported


#: How many new objects let the collector look meanwhile.
_RARE = 50_000
#: When it usually looks, if it looks rarely.
_usual: tuple[int, int, int] | None = None
#: Spark sets this variable in workers that search for garbage.
_REUSED = "SPARK_REUSE_WORKER"
#: How many modules the collector passes over.
_passed_over = 0
