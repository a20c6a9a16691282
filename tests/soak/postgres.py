"""Faults of a PostgreSQL server: restarts, a freeze, an older copy that takes over."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from queue_core import Store
from queue_core.values.address import Address
from tests.servers import Postgres
from tests.soak.cast import Cast
from tests.soak.history import History
from tests.soak.nemesis import Fault
from tests.soak.sqlite import AGE
from tests.soak.workload import keep_house

#: A commit that returned is in the log's file, so that a server that dies loses none.
SETTINGS = "synchronous_commit = on\n"


class Standby:
    """An older copy of all files of a server."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._copy = server.data.with_name("copy")
        #: Since when the copy may lack transactions; 0 if there is none.
        self.copied = 0.0

    def follow(self, stopping: float) -> None:
        """Take a copy of the stopped server, unless there is one that is young."""
        if stopping - self.copied > AGE:
            _copy(self._server.data, self._copy)
            self.copied = stopping

    def forget(self) -> None:
        """Never let the copy take over that is there."""
        self.copied = 0.0

    def take_over(self) -> None:
        """Put the copy in the place of the stopped server."""
        _copy(self._copy, self._server.data)
        self.copied = 0.0


@dataclass(eq=False)
class Cut(Fault):
    """The connections of the processes to the server are cut, half of them or all."""

    name, weight, shared = "connections cut", 4.0, True

    url: str
    freeze: Freeze
    chance: random.Random

    def possible(self) -> bool:
        # A server that stands still would not answer, and hold up all other faults.
        return not self.freeze.is_on

    def begin(self) -> str | None:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        if self.chance.random() < 0.5:
            others += " AND random() < 0.5"
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with suppress(sa.exc.DBAPIError), engine.connect() as connection:
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
            )
        return None


@dataclass(eq=False)
class Restart(Fault):
    """The server is stopped and started again; half of the times it must recover."""

    name, weight, alone, shared = "restart", 1.0, True, True

    server: Postgres
    standby: Standby
    chance: random.Random

    def begin(self) -> str | None:
        begun, mode = time.monotonic(), self.chance.choice(("fast", "immediate"))
        self.server.stop(mode)
        if mode == "fast":
            self.standby.follow(begun)
        self.server.start()
        return None


@dataclass(eq=False)
class Freeze(Fault):
    """All processes of the server stand still."""

    name, weight, seconds, shared = "freeze", 1.0, (0.5, 6.0), True

    server: Postgres
    is_on: bool = False
    _frozen: ExitStack = field(default_factory=ExitStack)

    def begin(self) -> str | None:
        self._frozen.enter_context(self.server.frozen())
        self.is_on = True
        return None

    def heal(self) -> None:
        self._frozen.close()
        self.is_on = False


@dataclass(eq=False)
class Failover(Fault):
    """
    A standby takes over that lacks the newest transactions: an older copy of all files.

    The processes go on meanwhile, and find the other server at the same address; only the one that
    vacuums is ended first, as `ignis adopt` asks.
    """

    name, weight, alone, shared = "failover", 0.6, True, True

    server: Postgres
    standby: Standby
    address: Address
    cast: Cast
    history: History

    def possible(self) -> bool:
        return 0.0 < time.monotonic() - self.standby.copied < 2 * AGE

    def begin(self) -> str | None:
        begun, copied = time.monotonic(), self.standby.copied
        for part in self.cast.parts:
            if part.role is keep_house:
                self.cast.kill(part)
        self.server.stop("fast")
        self.standby.take_over()
        self.server.start()
        Store(self.address, create=False, adopt=True).close()
        self.history.write("restored", copied=copied, begun=begun)
        self.cast.start()
        return None


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with the owners of its files."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
