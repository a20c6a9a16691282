"""The processes of a soak: started, killed, stopped, and replaced when they die."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from tests.children import Child
from tests.soak.history import History
from tests.soak.workload import Role, Scene, consume, handle, keep_house, play, produce

#: How many processes play each role.
ROLES: dict[Role, int] = {produce: 3, consume: 3, handle: 1, keep_house: 1}


@dataclass
class Part:
    """A role, and the process that plays it now."""

    role: Role
    life: str = ""
    child: Child | None = None
    stopped: bool = False


class Cast:
    """All processes of a soak."""

    def __init__(self, scene: Scene, history: History, chance: random.Random) -> None:
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
            if part.child is None:
                self._begin(part)

    def check(self) -> None:
        """Replace processes that ended by themselves, which is a failure."""
        for part in self.parts:
            if part.child is not None and part.child.exit_code is not None:
                self._ended(part)
                if not self._scene.told("finishing"):
                    self._begin(part)

    def kill(self, part: Part) -> None:
        """Kill a process at any point."""
        begun = time.monotonic()
        part.child.kill()
        # It may have acted until its end, and others may have seen it dead before this entry.
        self._history.write("died", name=part.life, begun=begun)
        part.child, part.stopped = None, False

    def stop(self, part: Part) -> None:
        """Stop a process, as a hanging machine would."""
        os.kill(part.child.pid, signal.SIGSTOP)
        part.stopped = True

    def go_on(self, part: Part) -> None:
        """Let a process continue after `stop`."""
        if part.stopped:
            part.stopped = False
            os.kill(part.child.pid, signal.SIGCONT)

    def kill_all(self) -> None:
        """Kill every process."""
        for part in self.parts:
            if part.child is not None:
                self.kill(part)

    def end(self, seconds: float) -> None:
        """Wait until all processes have ended; kill those that do not."""
        end = time.monotonic() + seconds
        for part in self.parts:
            if part.child is not None:
                with suppress(AssertionError):
                    part.child.wait(max(0.0, end - time.monotonic()))
                self._ended(part)

    def pick(self) -> Part | None:
        """Choose a process that runs and is not stopped."""
        running = [part for part in self.parts if part.child is not None and not part.stopped]
        return self._chance.choice(running) if running else None

    def _begin(self, part: Part) -> None:
        self._lives += 1
        part.life = f"{part.role.__name__}-{self._lives}"
        seed = self._chance.randrange(1 << 30)
        log = self._scene.folder / f"{part.life}.log"
        part.child = Child(play, part.role, self._scene, part.life, self._lives, seed, log=log)

    def _ended(self, part: Part) -> None:
        assert part.child is not None
        code = part.child.exit_code
        self._history.write("died", name=part.life)
        if code != 0:
            self.broken.append(f"{part.life} ended with {code}:\n{part.child.output()[-2000:]}")
        part.child = None
