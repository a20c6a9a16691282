"""What work costs: CPU time of this process and of its sessions on a server, and statements."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import event

from queue_core import Store


class Meter:
    """
    Counts from its beginning on; SQLite is a part of this process.

    Args:
        store: The store whose statements are counted. A server must run on this machine.
    """

    def __init__(self, store: Store) -> None:
        self._sessions: set[int] = set()
        self.statements = 0
        event.listen(store.catalog.engine, "before_cursor_execute", self._count)
        event.listen(store.catalog.engine, "checkout", self._see)

    def client(self) -> float:
        """Return the CPU milliseconds of this process so far."""
        return time.process_time() * 1e3

    def server(self) -> float:
        """Return those of the server's processes for the sessions of this one."""
        seconds = 0.0
        for pid in self._sessions:
            # In nanoseconds; what `ps` reads counts hundredths of a second.
            seconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return seconds / 1e6

    def both(self) -> float:
        """Return the sum of both."""
        return self.client() + self.server()

    def _count(self, *_: object) -> None:
        self.statements += 1

    def _see(self, connection: object, *_: object) -> None:
        info = getattr(connection, "info", None)
        if info is not None:
            self._sessions.add(info.backend_pid)
