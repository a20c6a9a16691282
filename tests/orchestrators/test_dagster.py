"""The job of the page about Dagster, started by a real daemon, which is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import Store
from tests.examples import files
from tests.tree import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.orchestrator, pytest.mark.timeout(600)]
PAGE = "docs/how-to/dagster.md"


class Daemon:
    """A daemon of Dagster with the definitions of the page, which can be killed and started."""

    def __init__(self, folder: Path, store: Store) -> None:
        folder.mkdir()
        ((place, text),) = files(PAGE)
        self._file = folder / Path(place).name
        assert "minutes=10" in text
        # A run that is killed with the daemon does not keep the next one away for so long.
        self._file.write_text(text.replace("minutes=10", "seconds=20"))
        catalog, storage = store.address
        self._log = folder / "daemon.log"
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(folder),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "IGNIS_CATALOG": catalog,
            "IGNIS_STORAGE": storage,
            "PYTHONPATH": str(ROOT),
        }

    def start(self) -> None:
        command = [sys.executable, "-m", "dagster._daemon", "run", "-f", str(self._file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, cwd=self._file.parent,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def daemon(tmp_path: Path, store: Store) -> Iterator[Daemon]:
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    store.create_queue("orders", schema)
    store.create_queue("invoices", pa.schema([("id", pa.int64())]))
    made = Daemon(tmp_path / "dagster", store)
    made.start()
    yield made
    made.kill()


def test_a_job_handles_what_waits_and_a_killed_daemon_loses_nothing(daemon: Daemon, store: Store):
    orders, invoices = store.queue("orders"), store.queue("invoices")

    def handled() -> list[int]:
        return sorted(invoices.browse().column("id").to_pylist())

    for number in range(3):
        begin = time.monotonic()
        orders.load([{"id": number, "amount": 1.0}])
        if number == 1:
            daemon.kill()
            daemon.start()
        until(lambda number=number: handled() == [*range(number + 1)], "it was not handled")
        print(f"handled after {time.monotonic() - begin:.1f} s")

    assert set(store.view("queues").column("in_flight").to_pylist()) == {0}
