"""A task that was run, and its outcome."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from queue_core.errors import IgnisError

#: Seconds after which a task that failed is tried again. Source: IgnisMQ.
RETRY_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A task that was run, and its outcome."""

    task: str
    #: None: it ran for the store.
    queue: str | None
    #: The number of moved or removed messages; of files for a vacuum.
    moved: int = 0
    #: The error that ended it early.
    error: IgnisError | None = None


def failed(task: str, queue: str | None, error: IgnisError) -> Ran:
    """Log the failure of a task, and return it."""
    _log.warning("task %s of %s failed: %s", task, queue or "the store", error)
    return Ran(task=task, queue=queue, error=error)
