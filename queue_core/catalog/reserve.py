"""The reserve: a file beside an embedded catalog, whose room is given up on a full disk.

On a full disk, SQLite cannot even delete, because it first writes each transaction to its log. So
the catalog keeps a file as a reserve. When a transaction other than a load finds no room, the
catalog gives up the reserve, and makes it again afterwards. Loads are refused while the reserve is
missing.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

#: The reserve is as large as the catalog, within these bounds.
LEAST_BYTES = 512 * 1024
MOST_BYTES = 8 * 1024 * 1024

#: The reserve may be smaller by this much: making less room is not worth a try.
_STEP_BYTES = 64 * 1024
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Reserve:
    """The reserve of the catalog in a file; without one, on a server, it does nothing."""

    def __init__(self, catalog: Path | None) -> None:
        self._catalog = catalog
        self._path = None if catalog is None else Path(f"{catalog}-reserve")

    def keep(self) -> bool:
        """Make the reserve as large as it should be; return False if the disk has no room."""
        if self._path is None or self._catalog is None:
            return True
        try:
            size = self._catalog.stat().st_size
            return _extend(self._path, min(max(size, LEAST_BYTES), MOST_BYTES))
        except OSError as error:
            # A process that may only read needs none.
            return error.errno not in _NO_ROOM

    def give_up(self) -> None:
        """Give the room of the reserve to the transaction that needs it."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def is_there(self) -> bool:
        """Return whether the disk has the reserve, or at least the room for it."""
        return self._path is None or _size(self._path) > LEAST_BYTES - _STEP_BYTES or self.keep()


def _extend(path: Path, wanted: int) -> bool:
    """Make a file of *wanted* bytes, or as large as possible; return whether it has them all."""
    there = _size(path)
    if there >= wanted:
        return True
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    step = wanted - there
    try:
        while there < wanted and step >= _STEP_BYTES:
            step = min(step, wanted - there)
            try:
                _allocate(file, there, step)
                there += step
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                step //= 2
    finally:
        os.close(file)
    return there > LEAST_BYTES - _STEP_BYTES


def _allocate(file: int, start: int, count: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, start, count)
        return
    # Bytes that no file system compresses.
    if os.pwrite(file, os.urandom(count), start) < count:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
