"""Touches of a file, by which the processes of a machine wake each other.

A process that has changed something touches a file; the kernel tells those who watch it. Only Linux
can do that (inotify), and a user has a limited number of watches.
"""

from __future__ import annotations

import ctypes
import os
import select
from contextlib import suppress

#: Of inotify: the attributes of a file, such as its times, have changed.
_ATTRIBUTES = 0x4
#: What is read at once: far more than the touches that come together, each of 16 bytes.
_SIZE = 1 << 16


def touch(path: str) -> None:
    """Wake those who watch a file."""
    # It is not opened: closing a file of SQLite would give up all locks of the process.
    with suppress(OSError):
        os.utime(path)


class Touches:
    """A file that is watched. Raises `OSError` where that is impossible."""

    def __init__(self, path: str) -> None:
        self._file = _watch(path)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)

    def hear(self, seconds: float) -> set[str]:
        """Wait for a touch, and forget those that have come with it; nothing after *seconds*."""
        if not self._poll.poll(1000 * seconds):
            return set()
        os.read(self._file, _SIZE)
        # Of any queue.
        return {""}

    def close(self) -> None:
        """Watch no more."""
        with suppress(OSError):
            # Somebody else may have closed all descriptors.
            os.close(self._file)


def _watch(path: str) -> int:
    """Return a file that can be read when *path* is touched."""
    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "inotify_init1"):
        raise OSError("this system has no inotify")
    file = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), "no inotify")
    if system.inotify_add_watch(file, os.fsencode(path), _ATTRIBUTES) < 0:
        error = ctypes.get_errno()
        os.close(file)
        raise OSError(error, "no watch", path)
    return int(file)
