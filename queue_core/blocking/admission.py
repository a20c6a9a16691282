"""Admit: a load goes into a bounded queue at once, or waits in line until there is room.

Changes: nothing but the line. Each try is the load's own transaction, which counts what is there.
What is staged meanwhile lies in the storage and is seen by nobody. Crash while it waits: files that
no slice names, for vacuum; a streaming query stages its batch again and waits anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from queue_core import faults
from queue_core.capacity.bounds import CapacityExceeded, OnFull, amount, fits, fits_ever
from queue_core.capacity.wait_line import WaitLine
from queue_core.catalog import usage, waiters
from queue_core.catalog.database import Catalog
from queue_core.errors import QueueFull
from queue_core.model import QueueInfo, Staged
from queue_core.verbs.expire import expire

Result = TypeVar("Result")

#: One try to load, given the number under which it waits: raises `CapacityExceeded`.
Attempt = Callable[[int | None], Result]

#: Seconds between two looks of the first in line for what is too old to have a right to its room.
EXPIRE_SECONDS = 5.0


def admit(
    catalog: Catalog,
    storage_uri: str,
    queue: QueueInfo,
    staged: Sequence[Staged],
    attempt: Attempt[Result],
    when_full: OnFull,
) -> Result:
    """
    Load as soon as there is room, if that is to be waited for.

    Raises `QueueFull`, and what the attempt raises.
    """
    try:
        return attempt(None)
    except CapacityExceeded as error:
        told = error
    if told.ever and expire(catalog, storage_uri, queue):
        try:
            return attempt(None)
        except CapacityExceeded as error:
            told = error
    blocks = (when_full.overflow or queue.settings.overflow) == "block"
    if not told.ever or not blocks or when_full.timeout == 0:
        raise QueueFull(str(told))

    def look(connection: Connection) -> tuple[Hashable, bool]:
        room = usage.look(connection, queue)
        is_due = time.monotonic() > looked_at + EXPIRE_SECONDS
        return room.there, is_due or fits(room, load) or not fits_ever(room, load)

    load = amount(staged)
    looked_at = time.monotonic()
    with WaitLine(catalog, queue, waiters.LOAD, when_full.timeout) as line:
        faults.point("load.waiting")
        while line.wait(look):
            if time.monotonic() > looked_at + EXPIRE_SECONDS:
                expire(catalog, storage_uri, queue)
                looked_at = time.monotonic()
            try:
                result = attempt(line.waiter)
                line.left = True
                return result
            except CapacityExceeded as error:
                told = error
                if not error.ever:
                    break
    raise QueueFull(str(told))
