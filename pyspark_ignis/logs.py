"""The log of Spark's Python processes, which nobody else can configure.

Spark starts the processes that plan and commit batches, with the environment of the driver. Their
standard error is that of the driver. They log warnings; with ``IGNIS_LOG=info``, also each step of
each batch.
"""

from __future__ import annotations

import logging
import os

VARIABLE = "IGNIS_LOG"
_LEVELS = ("debug", "info", "warning", "error")
_PACKAGES = ("ignis_source", "ignis_sink", "pyspark_ignis", "queue_core")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure() -> None:
    """Log to standard error from the level in ``IGNIS_LOG`` on, if it is set; once per process."""
    level = os.environ.get(VARIABLE, "").lower()
    if level not in _LEVELS:
        return
    for name in _PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        if not logger.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(_FORMAT))
            logger.addHandler(handler)
            # A root logger that has handlers would show each line again.
            logger.propagate = False
