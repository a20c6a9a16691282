"""Processes of `ignis work`: several of them, and again what dies."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from ignis_cli.invocation import REFUSED, Invocation, current
from queue_core.pool.signals import asked_to_end

#: Seconds before a process that died is started again; they double up to the most, and begin again
#: once a process has lived for the longest time.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _GOOD_SECONDS = 0.5, 30.0, 60.0
#: Seconds between two looks at the processes.
_LOOK_SECONDS = 0.1
#: Seconds that a process has for its end beyond the time of its handlers.
_END_SECONDS = 15.0
_log = logging.getLogger(__name__)


@dataclass
class _Place:
    """A place for a process, which has one at a time, all with the same name."""

    arguments: Sequence[str]
    process: subprocess.Popen[str] | None = None
    started: float = 0.0
    pause: float = _PAUSE_SECONDS
    #: When the next one starts; None: never again.
    due: float | None = 0.0


def supervised(commands: Sequence[Sequence[str]], stop_seconds: float) -> dict[str, int]:
    """
    Run a process for each of some commands, and again what dies; return the sum of their counts.

    Ends with `REFUSED` if one of them ends so.
    """
    supervisor = Supervisor(current.get(), commands)
    supervisor.run(stop_seconds)
    if supervisor.refused:
        raise typer.Exit(REFUSED)
    return dict(supervisor.counts)


class Supervisor:
    """
    Runs processes of the command, and starts again those that die.

    Args:
        invocation: The address of the store, which the processes get by their environment.
        commands: The arguments of each process, behind ``ignis --json``.
    """

    def __init__(self, invocation: Invocation, commands: Sequence[Sequence[str]]) -> None:
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("IGNIS_")}
        for name, value in invocation._asdict().items():
            if value:
                self._environment[f"IGNIS_{name.upper()}"] = value
        self._places = [_Place(arguments) for arguments in commands]
        #: What the processes have counted; those that died have not.
        self.counts: Counter[str] = Counter()
        #: Whether a process has refused its work, so that a new one would too.
        self.refused = False

    def run(self, stop_seconds: float) -> None:
        """Work until SIGTERM or Ctrl-C, or until all processes have ended by themselves."""
        with asked_to_end() as asked:
            try:
                while not (asked.is_set() or self.refused or self._are_done):
                    for place in self._places:
                        self._look(place)
                    asked.wait(_LOOK_SECONDS)
            finally:
                self._end(stop_seconds)

    @property
    def _are_done(self) -> bool:
        return all(place.due is None and place.process is None for place in self._places)

    def _look(self, place: _Place) -> None:
        process, now = place.process, time.monotonic()
        if process is None:
            if place.due is not None and now >= place.due:
                self._start(place)
            return
        code = process.poll()
        if code is None:
            return
        self._count(place)
        if code in (0, REFUSED):
            place.due = None
            self.refused = self.refused or code == REFUSED
            return
        if now - place.started > _GOOD_SECONDS:
            place.pause = _PAUSE_SECONDS
        place.due = now + place.pause
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        _log.warning("process %d %s; another starts in %g s", process.pid, ended, place.pause)
        place.pause = min(place.pause * 2, _LONGEST_PAUSE_SECONDS)

    def _start(self, place: _Place) -> None:
        place.started = time.monotonic()
        place.process = subprocess.Popen(
            [sys.executable, "-m", "ignis_cli", "--json", *place.arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
            # Ctrl-C goes to this process alone, which asks the others to end, once.
            start_new_session=True,
        )

    def _count(self, place: _Place) -> None:
        assert place.process is not None
        said, _ = place.process.communicate()
        place.process = None
        for line in said.splitlines():
            self.counts.update(json.loads(line))

    def _end(self, stop_seconds: float) -> None:
        running = [place for place in self._places if place.process is not None]
        for place in running:
            assert place.process is not None
            place.process.terminate()
        end = time.monotonic() + stop_seconds + _END_SECONDS
        for place in running:
            process = place.process
            assert process is not None
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                # Its messages come back, as those of any process that is killed.
                process.kill()
            self._count(place)
