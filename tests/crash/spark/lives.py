"""The lives of a driver: each has a session of processes of its own, which dies as a whole."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.tree import ROOT

#: Seconds that anything may take which is sure to happen.
PATIENCE = 600.0
#: How the command of a Python worker ends, and of the daemon that it was forked from.
_DAEMON = ["pyspark.daemon", "pyspark.worker"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a driver is told to do."""

    #: What its processes are armed with (`queue_core.support.faults`).
    fault: str | None = None

    def to_json(self) -> str:
        """The work as an argument of the command."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The work that `to_json` has made a text of."""
        return cls(**json.loads(text))


class Life:
    """One life of a driver with its JVM and its Python workers; all are dead when it ends."""

    def __init__(self, job: Work, said: Path, *command: str) -> None:
        """Start the driver of these tests, or the module and its further arguments in *command*."""
        self._said = said
        module, *more = command or ("tests.crash.spark.driver",)
        with said.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, job.to_json(), *more],
                start_new_session=True,
                cwd=ROOT,
                env=_environment(job.fault),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
            )

    def __enter__(self) -> Life:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def wait_until_up(self) -> None:
        """Until the query is started."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != b"up":
            raise AssertionError(f"a driver did not start:\n{self.last_words()}")

    def wait(self) -> int:
        """Until the driver ends or is killed by a fault; its exit code, negative for a signal."""
        code = self._process.wait(PATIENCE)
        self.kill()
        return code

    def is_alive(self) -> bool:
        """Whether the driver has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill every process of the session, and wait until none is left."""
        wait_for(lambda: not _kill_session(self._process.pid), "a session to die")
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def pause(self) -> None:
        """Stop the JVM as a long collection of garbage would; its workers end what they do."""
        os.kill(self._jvm(), signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the JVM continue after a `pause`."""
        os.kill(self._jvm(), signal.SIGCONT)

    def workers(self) -> list[int]:
        """The Python workers that run tasks now."""
        living = _processes_of(self._process.pid)
        daemons = {pid for pid in living if _command(pid)[-2:] == _DAEMON}
        return [pid for pid in daemons if _parent(pid) in daemons]

    def _jvm(self) -> int:
        [found] = [
            pid
            for pid in _processes_of(self._process.pid)
            if _command(pid)[-1:] == ["pyspark-shell"]
        ]
        return found

    def last_words(self) -> str:
        """The end of what its processes wrote to stderr."""
        return self._said.read_text(errors="replace")[-6000:]


def wait_for(happened: Callable[[], bool], what: str) -> None:
    """Look again and again until something has happened."""
    end = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} seconds for {what}")
        time.sleep(0.01)


def kill_one(pids: list[int], chance: random.Random) -> bool:
    """Kill one of these processes; False when there is none any more."""
    if not pids:
        return False
    os.kill(chance.choice(pids), signal.SIGKILL)
    return True


def _environment(fault: str | None) -> dict[str, str]:
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return os.environ | ours | ({"IGNIS_FAULT": fault} if fault else {})


def _kill_session(session: int) -> list[int]:
    """Kill the living processes of a session; return which they were."""
    living = _processes_of(session)
    for pid in living:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return living


def _processes_of(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            status = _status(int(entry.name))
            # State, parent, group, session: proc(5). A zombie is dead.
            if status and int(status[3]) == session and status[0] not in "ZX":
                found.append(int(entry.name))
    return found


def _parent(pid: int) -> int:
    status = _status(pid)
    return int(status[1]) if status else 0


def _status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return []
