"""Processes that tests start and kill, forked from one that has imported everything already.

A new interpreter takes a second to import the libraries; a child of the fork server starts in some
milliseconds, and shares no connection, thread or lock with the tests.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from queue_core import Store
from queue_core.support import faults
from tests.waiting import PATIENCE, until

_CONTEXT = multiprocessing.get_context("forkserver")
# Arrow imports pandas for the first array that it makes.
_CONTEXT.set_forkserver_preload(
    [
        *("pandas", "pytest", "psycopg", "sqlalchemy.dialects.postgresql.psycopg"),
        *("queue_core.selector.grammar", "queue_core.store", "queue_core.queue"),
        *("queue_core.pool", "queue_core.catalog.databases.sqlite", "pyarrow.fs"),
        # What their own functions use.
        *("tests.children", "tests.crash.workloads", "tests.model.conformance"),
        "tests.kills.killing",
    ]
)


class Child:
    """A process that runs ``target(*args)``; its output goes to the file *log*."""

    def __init__(
        self,
        target: Callable[..., None],
        *args: Any,
        log: Path,
        fault: str | None = None,
    ) -> None:
        self.log = log
        self.name = f"ignis-{log.name}"
        self._process = _CONTEXT.Process(target=_begin, args=(self.name, log, fault, target, args))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative number of the signal that killed it."""
        return self._process.exitcode

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end and return its exit code; kill it if it does not end in time."""
        self._process.join(seconds)
        if self.exit_code is None:
            self.kill()
            raise AssertionError(f"{self.name} did not end in {seconds:.0f} s: {self.output()}")
        return self.exit_code

    def kill(self) -> None:
        """End it by SIGKILL, wherever it is."""
        self._process.kill()
        self._process.join()

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_for_rollback(self, store: Store) -> None:
        """Wait until the database has noticed that the child is dead."""
        if store.catalog.file is not None:
            # The child's locks on a SQLite database died with it.
            return
        query = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")

        def is_gone() -> bool:
            with store.catalog.read() as connection:
                return bool(connection.scalar(query, {"name": self.name}) == 0)

        until(is_gone, f"PostgreSQL still has connections of {self.name}")


class Journal:
    """The actions of a child, one line each, in a file that survives the child."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, what: str, **details: Any) -> None:
        line = json.dumps({"what": what, **details}) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode())

    def read(self, *what: str) -> list[dict[str, Any]]:
        """The entries of these kinds, or all of them, in order; a line cut short never counts."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().split("\n")[:-1]
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if not what or entry["what"] in what]


def _begin(
    name: str, log: Path, fault: str | None, target: Callable[..., None], args: tuple[Any, ...]
) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A test may keep a journal of the transactions of its children.
    from tests import unsynced
    from tests.model import journal

    journal.follow()
    unsynced.follow()

    # PostgreSQL shows it with each connection.
    os.environ["PGAPPNAME"] = name
    if fault is not None:
        os.environ["IGNIS_FAULT"] = fault
        faults.arm(os.environ["IGNIS_FAULT"])
    target(*args)
