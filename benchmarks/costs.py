"""What work costs: CPU time of this process and of its sessions on a server, and statements."""

from __future__ import annotations

import time
from contextlib import suppress
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
        #: The nanoseconds of each session when it was last there.
        self._sessions: dict[int, int] = {}
        self.statements = 0
        event.listen(store.catalog.engine, "before_cursor_execute", self._count)
        event.listen(store.catalog.engine, "checkout", self._see)

    def client(self) -> float:
        """Return the CPU milliseconds of this process so far."""
        return time.process_time() * 1e3

    def server(self) -> float:
        """Return those of the server's processes for the sessions of this one."""
        for pid in self._sessions:
            # What `ps` reads counts hundredths of a second. Those that were idle may have ended.
            with suppress(FileNotFoundError):
                now = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
                self._sessions[pid] = int(now)
        return sum(self._sessions.values()) / 1e6

    def both(self) -> float:
        """Return the sum of both."""
        return self.client() + self.server()

    def _count(self, *_: object) -> None:
        self.statements += 1

    def _see(self, connection: object, *_: object) -> None:
        info = getattr(connection, "info", None)
        if info is not None:
            self._sessions.setdefault(info.backend_pid, 0)
