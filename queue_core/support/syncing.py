"""`sync`: make a file, or the names in a folder, survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Wait until what was written to a file or a folder is on the disk; raises `OSError`."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
