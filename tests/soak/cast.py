"""The processes of a soak: started, killed, stopped, and replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass
from typing import Any

from tests.soak.history import History
from tests.soak.workload import Role, Scene, consume, handle, keep_house, play, produce

#: How many processes play each role.
ROLES: dict[Role, int] = {produce: 3, consume: 3, handle: 1, keep_house: 1}

# A child of the fork server starts in milliseconds and shares no connection with this process.
_CONTEXT = multiprocessing.get_context("forkserver")
# Arrow imports pandas, if it is installed, for the first array that it makes.
_PRELOADED = ["tests.soak.workload", "queue_core.selector.grammar", "pandas"]


@dataclass
class Part:
    """A role, and the process that plays it now."""

    role: Role
    life: str = ""
    process: Any = None
    stopped: bool = False


class Cast:
    """All processes of a soak."""

    def __init__(self, scene: Scene, history: History, chance: random.Random) -> None:
        _CONTEXT.set_forkserver_preload(_PRELOADED)
        self._scene = scene
        self._history = history
        self._chance = chance
        self._lives = 0
        self.parts = [Part(role) for role, count in ROLES.items() for _ in range(count)]
        #: The last words of processes that ended by an error that is not one of ignis.
        self.broken: list[str] = []

    def start(self) -> None:
        """Start every process that does not run."""
        for part in self.parts:
            if part.process is None:
                self._begin(part)

    def check(self) -> None:
        """Replace processes that ended by themselves, which is a failure."""
        for part in self.parts:
            if part.process is not None and part.process.exitcode is not None:
                self._ended(part)
                if not self._scene.told("finishing"):
                    self._begin(part)

    def kill(self, part: Part) -> None:
        """Kill a process at any point."""
        begun = time.monotonic()
        part.process.kill()
        part.process.join()
        # It may have acted until its end, and others may have seen it dead before this entry.
        self._history.write("died", name=part.life, begun=begun)
        part.process, part.stopped = None, False

    def stop(self, part: Part) -> None:
        """Stop a process, as a hanging machine would."""
        os.kill(part.process.pid, signal.SIGSTOP)
        part.stopped = True

    def go_on(self, part: Part) -> None:
        """Let a process continue after `stop`."""
        if part.stopped:
            part.stopped = False
            os.kill(part.process.pid, signal.SIGCONT)

    def kill_all(self) -> None:
        """Kill every process."""
        for part in self.parts:
            if part.process is not None:
                self.kill(part)

    def end(self, seconds: float) -> None:
        """Wait until all processes have ended; kill those that do not."""
        end = time.monotonic() + seconds
        for part in self.parts:
            if part.process is None:
                continue
            part.process.join(max(0.0, end - time.monotonic()))
            if part.process.exitcode is None:
                self.broken.append(f"{part.life} did not end within {seconds:.0f} s")
                self.kill(part)
            else:
                self._ended(part)

    def pick(self) -> Part | None:
        """Choose a process that runs and is not stopped."""
        running = [part for part in self.parts if part.process is not None and not part.stopped]
        return self._chance.choice(running) if running else None

    def _begin(self, part: Part) -> None:
        self._lives += 1
        part.life = f"{part.role.__name__}-{self._lives}"
        seed = self._chance.randrange(1 << 30)
        args = (part.role, self._scene, part.life, self._lives, seed)
        log = self._scene.folder / f"{part.life}.log"
        part.process = _CONTEXT.Process(target=_act, args=(str(log), *args), name=part.life)
        part.process.start()

    def _ended(self, part: Part) -> None:
        code = part.process.exitcode
        self._history.write("died", name=part.life)
        if code != 0:
            log = self._scene.folder / f"{part.life}.log"
            said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            self.broken.append(f"{part.life} ended with {code}:\n{said}")
        part.process = None


def _act(log: str, *args: Any) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    play(*args)
