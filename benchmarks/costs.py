"""What work costs: CPU time of this process and of its sessions on a server, and statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from sqlalchemy import event

from queue_core import Store
from queue_core.catalog.identity.handle import StoreHandle


class Costs(NamedTuple):
    """CPU milliseconds of this process and of the server's processes for it, and what it sent."""

    client: float
    server: float
    statements: int
    transactions: int

    @property
    def cpu(self) -> float:
        """The milliseconds of both."""
        return self.client + self.server


class Meter:
    """
    Counts from its beginning on; SQLite is a part of this process.

    Args:
        store: The store whose statements are counted. A server must run on this machine.
    """

    def __init__(self, store: Store | StoreHandle) -> None:
        #: The nanoseconds of each session when it was last there.
        self._sessions: dict[int, int] = {}
        self._statements = self._transactions = 0
        event.listen(store.catalog.engine, "before_cursor_execute", self._execute)
        event.listen(store.catalog.engine, "begin", self._begin)
        event.listen(store.catalog.engine, "checkout", self._see)

    def now(self) -> Costs:
        """Return the costs so far."""
        client = time.process_time() * 1e3
        # As a list, since other threads may begin a session meanwhile.
        for pid in list(self._sessions):
            # What `ps` reads counts hundredths of a second. Those that were idle may have ended.
            with suppress(FileNotFoundError):
                spent = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
                self._sessions[pid] = int(spent)
        server = sum(self._sessions.values()) / 1e6
        return Costs(client, server, self._statements, self._transactions)

    def since(self, before: Costs) -> Costs:
        """Return the costs since a moment before."""
        return Costs(*(late - early for late, early in zip(self.now(), before, strict=True)))

    def _execute(self, *_: object) -> None:
        self._statements += 1

    def _begin(self, _: object) -> None:
        self._transactions += 1

    def _see(self, connection: object, *_: object) -> None:
        info = getattr(connection, "info", None)
        if info is not None:
            self._sessions.setdefault(info.backend_pid, 0)


@contextmanager
def writes(store: Store) -> Iterator[list[float]]:
    """Note the seconds of each transaction of a store that writes."""
    lasted: list[float] = []
    write = store.catalog.write

    def timed(*arguments: object, **options: object) -> object:
        begun = time.perf_counter()
        try:
            return write(*arguments, **options)
        finally:
            lasted.append(time.perf_counter() - begun)

    with mock.patch.object(store.catalog, "write", timed):
        yield lasted
