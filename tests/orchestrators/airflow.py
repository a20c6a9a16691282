"""A real Airflow in a folder: its processes, and what its database says of DAG runs."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ports import lasting_port
from tests.tree import ROOT
from tests.waiting import PATIENCE, until

AIRFLOW = Path(sys.executable).with_name("airflow")
COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")


class Run(NamedTuple):
    """A DAG run; times in seconds since 1970."""

    id: int
    state: str
    started_at: float | None


#: How a line of the triggerer's log says when an event came from a trigger.
_FIRED = re.compile(r"^(\S+)Z .*Trigger fired event", re.MULTILINE)


class Airflow(AbstractContextManager["Airflow"]):
    """An Airflow with SQLite, whose processes find the store in their environment."""

    def __init__(self, folder: Path, dags: Path, place: dict[str, str]) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = {name: str(lasting_port()) for name in ("api", "triggers", "workers")}
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW")},
            **place,
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__API__PORT": ports["api"],
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{ports['api']}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": ports["triggers"],
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": ports["workers"],
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
            # A killed triggerer counts as dead after these seconds, and its triggers are free.
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
            "PYTHONPATH": str(ROOT),
        }

    def __enter__(self) -> Airflow:
        self._folder.mkdir()
        self.run("db", "migrate")
        for name in COMPONENTS:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self._processes]:
            self.kill(name)

    def run(self, *arguments: str) -> None:
        """Run a command."""
        subprocess.run(
            [AIRFLOW, *arguments], env=self._environment, check=True, stdout=subprocess.DEVNULL
        )

    def start(self, name: str) -> None:
        """Start a component in a session of its own."""
        with self._folder.joinpath(f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [AIRFLOW, name], env=self._environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a component with all its processes, by kill -9."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask the database of Airflow."""
        url = f"file:{self._folder}/airflow.db?mode=ro"
        with closing(sqlite3.connect(url, uri=True, timeout=30)) as connection:
            return connection.execute(statement, values).fetchall()

    def wait_for_triggers(self, count: int) -> None:
        """Wait until a living triggerer has *count* triggers."""
        until(
            lambda: (
                len(self.ask("SELECT 1 FROM trigger WHERE triggerer_id = ?", self._triggerer()))
                == count
            ),
            "no triggerer has the triggers",
        )

    def _triggerer(self) -> int:
        found = self.ask("SELECT coalesce(max(id), 0) FROM job WHERE job_type = 'TriggererJob'")
        return int(found[0][0])

    def runs(self, dag: str, after: int = 0) -> list[Run]:
        """Return the runs of a DAG with larger ids, oldest first."""
        rows = self.ask(
            "SELECT id, state, start_date FROM dag_run WHERE dag_id = ? AND id > ? ORDER BY id",
            dag, after,
        )  # fmt: skip
        return [Run(id, state, _seconds(begin)) for id, state, begin in rows]

    def fired(self) -> list[float]:
        """Return when triggers yielded events, in seconds since 1970."""
        text = self._folder.joinpath("triggerer.log").read_text()
        return [_seconds(at) or 0.0 for at in _FIRED.findall(text)]

    def stored(self) -> list[float]:
        """Return when Airflow stored these events, in seconds since 1970."""
        rows = self.ask("SELECT timestamp FROM asset_event ORDER BY id")
        return [_seconds(at) or 0.0 for (at,) in rows]

    def next_run(self, dag: str, after: int) -> Run:
        """Wait for the next run of a DAG that succeeds, and return it."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for run in self.runs(dag, after):
                assert run.state != "failed", (self._folder, dag)
                if run.state == "success":
                    return run
            time.sleep(0.05)
        raise AssertionError(f"no run of {dag} after {after}: {self._folder}")


def _seconds(text: str | None) -> float | None:
    """Return a time of SQLite in seconds since 1970."""
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
