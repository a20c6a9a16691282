"""Arrival: unpickle on an executor what Spark has sent, or say what the executor lacks.

Spark sends this function by value (`pyspark_ignis.shipping`), so it runs where ignis is missing. It
imports everything within itself.
"""

from __future__ import annotations

from typing import Any


def arrive(version: str, oldest_pyarrow: int, pickled: bytes) -> Any:
    """
    Return the object that was sent, whose class and state were pickled.

    *version*: that of ignis on the driver. Raises `ImportError` if ignis, pyarrow or a module of a
    handler is missing here, or has an unsuitable version.
    """
    import platform
    import sys

    from pyspark import cloudpickle

    where = f"{platform.node()}, {sys.executable}"
    lacks = ship = None
    try:
        import pyarrow

        import queue_core

        if int(pyarrow.__version__.partition(".")[0]) < oldest_pyarrow:
            lacks, ship = f"pyarrow {pyarrow.__version__}", f"'pyarrow>={oldest_pyarrow}'"
        # Versions before this check have none.
        elif getattr(queue_core, "__version__", None) != version:
            found = getattr(queue_core, "__version__", "of another version")
            lacks, ship = f"ignis {found}, and the driver {version}", f"ignis-queue=={version}"
    except ImportError as error:
        lacks, ship = f"no module {error.name}", f"ignis-queue=={version}"
    if lacks is not None:
        raise ImportError(
            f"ignis: an executor ({where}) has {lacks}: pip install {ship} there, or send it an "
            "environment with spark.archives"
        )
    try:
        kind, state = cloudpickle.loads(pickled)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"ignis: an executor ({where}) has no module {error.name}: send it there with "
            "--py-files or spark.archives, or install it"
        ) from error
    thing = kind.__new__(kind)
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
    else:
        thing.__dict__.update(state or {})
    return thing
