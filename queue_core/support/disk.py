"""The disk of a folder: its size, and what is free."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple


class Disk(NamedTuple):
    """The bytes of a disk, and those that are free for this process."""

    size: int
    free: int


def disk_of(path: str | Path) -> Disk | None:
    """Return the disk of a file or folder; None if it cannot be reached."""
    try:
        found = shutil.disk_usage(path)
    except OSError:
        return None
    return Disk(found.total, found.free)
