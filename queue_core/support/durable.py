"""Folders and files whose names and contents are on the disk, even if the power fails."""

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


def make_folder(folder: str | Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, and wait for the disk; raises `OSError`."""
    missing = []
    path = Path(folder).absolute()
    while not path.exists():
        missing.append(path)
        path = path.parent
    Path(folder).mkdir(mode, parents=True, exist_ok=True)
    for made in missing:
        sync(made.parent)
