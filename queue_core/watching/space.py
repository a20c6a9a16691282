"""Space: how much room the disks of the catalog and of the storage have left."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from queue_core.catalog.database import Catalog
from queue_core.segments.storage import Storage


class Space(NamedTuple):
    """The room of a disk."""

    #: What lies on it: ``catalog``, ``storage``, or both.
    of: str
    path: str
    free: int
    size: int


def disk_of(path: str | Path) -> tuple[int, int] | None:
    """Return the size and the free bytes of a path's disk; None if it cannot be reached."""
    with suppress(OSError):
        found = shutil.disk_usage(path)
        return found.total, found.free
    return None


def read(catalog: Catalog, storage: Storage) -> tuple[Space, ...]:
    """Return the room of the local disks; a server and a bucket have none that is known here."""
    found: dict[int, Space] = {}
    for of, path in (("catalog", catalog.file), ("storage", storage.folder)):
        disk = None if path is None else disk_of(path)
        if path is not None and disk is not None:
            with suppress(OSError):
                size, free = disk
                device = os.stat(path).st_dev
                also = f"{found[device].of} and {of}" if device in found else of
                found[device] = Space(also, str(path), free, size)
    return tuple(found.values())
