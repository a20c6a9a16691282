"""Temporary files are in memory, where the system has room for them there.

On a disk, making the files of a PostgreSQL database costs more processor time than their contents.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
#: The files of all tests that run at once, several times.
_ROOM = 4 << 30


def begin() -> None:
    """Let this process and its children have their temporary files in memory."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = str(_MEMORY)
        # It is found once, and kept.
        tempfile.tempdir = None


def _has_room() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
