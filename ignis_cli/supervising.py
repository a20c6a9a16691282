"""
Run several processes of `ignis work`, and start again those that die.

The processes check whether the supervisor is still their parent. If it dies, however that happens,
they end as by SIGTERM; if they were ending already, at once. Each has a pipe, into which it writes
what it has counted: its standard output belongs to its handler.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import typer

from ignis_cli.invocation import REFUSED, Invocation
from queue_core.pool.signals import asked_to_end

#: The variables with the process id of the supervisor, and the number of the end of the pipe.
_SUPERVISOR, _COUNTS = "IGNIS_SUPERVISOR", "IGNIS_SUPERVISOR_COUNTS"
#: The most bytes of counts, which a pipe takes without a reader.
_MOST_BYTES = 4096
#: Seconds before a process that died is started again. If it ended with an error, they double up to
#: the most, and begin again once a process has lived for the longest time. A process that was
#: killed may have met the message that the next ones find.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _GOOD_SECONDS = 0.5, 30.0, 60.0
#: Seconds between two looks at whether all processes have ended, or the supervisor has.
_LOOK_SECONDS = 0.1
#: Seconds that a process has for its end beyond the time of its handlers.
_END_SECONDS = 15.0
#: Set once the supervisor of this process is dead.
_orphaned = threading.Event()
_log = logging.getLogger(__name__)


def end_with_supervisor() -> int | None:
    """In a process of a supervisor: end when that has died. Return the pipe for the counts."""
    # A process that a handler starts must not take these for its own.
    supervisor, counts = os.environ.pop(_SUPERVISOR, None), os.environ.pop(_COUNTS, None)
    if supervisor is not None:
        threading.Thread(target=_end_after, args=(int(supervisor),), daemon=True).start()
    return None if counts is None else int(counts)


def tell_supervisor(pipe: int, counts: Mapping[str, int]) -> None:
    """Tell the supervisor of this process what was counted."""
    # It may have died.
    with suppress(OSError):
        os.write(pipe, json.dumps(counts).encode())


def be_asked_once() -> None:
    """
    Let a second SIGTERM end this process only if its supervisor is dead; call it before the work.

    A service manager may send SIGTERM to all processes of a service, and then the supervisor sends
    another one. It kills processes that take too long.
    """

    def again(*_: object) -> None:
        if _orphaned.is_set():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, again)


def _end_after(supervisor: int) -> None:
    while os.getppid() == supervisor:
        time.sleep(_LOOK_SECONDS)
    _orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)


class Supervisor:
    """
    Runs processes of the command, and starts again those that die: a thread waits for each.

    Args:
        invocation: The address of the store, which the processes get by their environment.
        commands: The arguments of each process, behind ``ignis --json``.
    """

    def __init__(self, invocation: Invocation, commands: Sequence[Sequence[str]]) -> None:
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("IGNIS_")}
        for name, value in invocation._asdict().items():
            if value:
                self._environment[f"IGNIS_{name.upper()}"] = value
        self._environment[_SUPERVISOR] = str(os.getpid())
        self._threads = [
            threading.Thread(target=self._keep, args=(each,), daemon=True) for each in commands
        ]
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        #: Set when no process starts any more.
        self._ends = threading.Event()
        #: What the processes have counted; those that died have not.
        self.counts: Counter[str] = Counter()
        #: How many processes died.
        self.died = 0
        #: Whether a process has refused its work, so that a new one would too.
        self._refused = False

    def run(self, stop_seconds: float) -> None:
        """
        Work until SIGTERM or Ctrl-C, or until all processes have ended by themselves.

        Ends the command with `REFUSED` if one of them ends so.
        """
        with asked_to_end() as asked:
            try:
                for thread in self._threads:
                    thread.start()
                while not (asked.is_set() or self._refused) and self._alive:
                    asked.wait(_LOOK_SECONDS)
            finally:
                self._end(stop_seconds)
        if self._refused:
            raise typer.Exit(REFUSED)

    @property
    def _alive(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]

    def _keep(self, arguments: Sequence[str]) -> None:
        """Run one process after another, until one ends by itself or none starts any more."""
        pause = _PAUSE_SECONDS
        while not self._ends.is_set():
            started, code = time.monotonic(), 1
            try:
                code, ended = self._live(arguments)
            except OSError as error:
                # Such as for want of memory, which there may be later.
                ended = f"a process cannot start: {error}"
            if code in (0, REFUSED) or self._ends.is_set():
                return
            if code < 0 or time.monotonic() - started > _GOOD_SECONDS:
                pause = _PAUSE_SECONDS
            _log.warning("%s; another starts in %g s", ended, pause)
            self._ends.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _live(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a process; return how it ended, as a code and in words. 0: none starts any more."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as told:
            os.set_blocking(reading, False)
            try:
                process = self._start(arguments, writing)
            finally:
                os.close(writing)
            if process is None:
                return 0, ""
            code = process.wait()
            counts = told.read(_MOST_BYTES)
        with self._lock:
            self._running.remove(process)
            self.counts.update(json.loads(counts) if counts else {})
            self._refused = self._refused or code == REFUSED
            self.died += code not in (0, REFUSED)
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        return code, f"process {process.pid} {ended}"

    def _start(self, arguments: Sequence[str], pipe: int) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._ends.is_set():
                return None
            process = subprocess.Popen(
                [sys.executable, "-m", "ignis_cli", "--json", *arguments],
                env=self._environment | {_COUNTS: str(pipe)},
                pass_fds=[pipe],
                # Ctrl-C goes to this process alone, which asks the others to end, once.
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def _end(self, stop_seconds: float) -> None:
        with self._lock:
            self._ends.set()
            for process in self._running:
                process.terminate()
        end = time.monotonic() + stop_seconds + _END_SECONDS
        for thread in self._alive:
            thread.join(max(end - time.monotonic(), 0.1))
        with self._lock:
            for process in self._running:
                # Its messages come back, as those of any process that is killed.
                process.kill()
        for thread in self._alive:
            thread.join()
