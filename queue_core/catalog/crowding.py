"""Crowding: the server has no connection left, and this process waits for one.

Idle processes close connections after some seconds, and others of this process may come back to its
pool. So it tries again, in pauses that grow, for about as long as it would wait for a lock.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from queue_core.catalog.dialect import Dialect
from queue_core.values.backoff import exponential

#: The first pause and the longest one, in seconds.
FIRST_SECONDS, LAST_SECONDS = 0.05, 2.0
_GROWING = exponential(FIRST_SECONDS, max=LAST_SECONDS)

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


def pauses() -> Iterator[float]:
    """Yield the seconds to wait after each attempt, without end; random, so that not all meet."""
    for attempt in itertools.count(1):
        longest = _GROWING.seconds(attempt)
        yield random.uniform(longest / 2, longest)


def wait_for(connect: Callable[[], Result], dialect: Dialect, shown: str) -> Result:
    """
    Return what *connect* returns; call it again while the server has no connection left.

    *shown*: the catalog's URL without secrets. Raises the last error after `busy_seconds`.
    """
    end = time.monotonic() + dialect.busy_seconds
    logged, following = False, pauses()
    while True:
        try:
            return connect()
        except DBAPIError as error:
            if not dialect.errors.is_crowded(error) or time.monotonic() > end:
                raise
        pause = next(following)
        if not logged and pause >= LAST_SECONDS / 2:
            logged = True
            _log.warning("the server of catalog %s has no connection left; waiting for one", shown)
        time.sleep(pause)
