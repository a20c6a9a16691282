"""Space: how much room the disks of the catalog and of the storage have left."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
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


def read(catalog: Catalog, storage: Storage) -> tuple[Space, ...]:
    """Return the room of the local disks; a server and a bucket have none that is known here."""
    found: dict[int, Space] = {}
    for of, path in (("catalog", catalog.file), ("storage", storage.folder)):
        # Without those that cannot be reached.
        with suppress(OSError):
            if path is not None:
                disk, device = shutil.disk_usage(path), os.stat(path).st_dev
                also = f"{found[device].of} and {of}" if device in found else of
                found[device] = Space(also, str(path), disk.free, disk.total)
    return tuple(found.values())
