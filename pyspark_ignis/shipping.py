"""Shipping: let executors check at once whether they have what ignis needs.

Spark pickles readers and writers, and sends them to executors. Without this check, an executor that
lacks ignis, or has another version of it, fails somewhere within Spark's own code.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark import cloudpickle

from pyspark_ignis import arrival
from queue_core import __version__

#: The first major version of pyarrow with which ignis works, as in `pyproject.toml`.
OLDEST_PYARROW = 21

T = TypeVar("T")

# An executor may not have this module.
cloudpickle.register_pickle_by_value(arrival)  # type: ignore[no-untyped-call]


def check_arrivals(kind: type) -> None:
    """Let the objects of a class check an executor when they are unpickled there."""
    copyreg.pickle(kind, _reduced)


def checked(shipped: T) -> T:
    """Return an object that Spark sends to executors, which it checks there."""
    check_arrivals(type(shipped))
    return shipped


def _reduced(shipped: object) -> tuple[Callable[..., Any], tuple[str, int, bytes]]:
    content = cloudpickle.dumps((type(shipped), shipped.__getstate__()))  # type: ignore[no-untyped-call]
    return arrival.arrive, (__version__, OLDEST_PYARROW, content)
