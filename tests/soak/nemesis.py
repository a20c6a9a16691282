"""The nemesis: begins one fault after another, and heals each after a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.soak.cast import Cast, Part
from tests.soak.history import History

#: Of each so many seconds, those in which faults may begin that all processes share: a Spark query
#: that any of them ends needs calm seconds to get on.
ROUND, ROUGH = 60.0, 25.0


class Fault:
    """A kind of fault. One of a kind is active at a time."""

    #: Its name in the report.
    name: str
    #: Its weight among the faults.
    weight: float = 1.0
    #: The range of seconds until it is healed; 0 for a fault that is over at once.
    seconds: tuple[float, float] = (0.0, 0.0)
    #: Whether it excludes all other faults while it lasts.
    alone: bool = False
    #: Whether it concerns what all processes need: the database or the storage.
    shared: bool = False

    def possible(self) -> bool:
        """Return whether it can begin now."""
        return True

    def begin(self) -> str | None:
        """Begin; return the life that it concerns, or None if it concerns all."""
        raise NotImplementedError

    def heal(self) -> None:
        """End it."""


@dataclass(eq=False)
class Kill(Fault):
    """A process is killed by SIGKILL."""

    name, weight = "kill", 4.0

    cast: Cast

    def begin(self) -> str | None:
        """Kill one, and start another."""
        part = self.cast.pick()
        if part is None:
            return None
        life = part.life
        self.cast.kill(part)
        self.cast.start()
        return life


@dataclass(eq=False)
class Stop(Fault):
    """A process stands still for a while, as one on a machine that hangs."""

    name, weight, seconds = "stop", 4.0, (0.2, 8.0)

    cast: Cast
    _part: Part | None = None

    def begin(self) -> str | None:
        """Stop one."""
        self._part = self.cast.pick()
        if self._part is None:
            return None
        self.cast.stop(self._part)
        return self._part.life

    def heal(self) -> None:
        """Let it go on."""
        if self._part is not None:
            self.cast.go_on(self._part)
            self._part = None


class Nemesis:
    """Chooses faults by chance, and writes each down."""

    def __init__(self, faults: Sequence[Fault], history: History, chance: random.Random) -> None:
        self._faults = list(faults)
        self._history = history
        self._chance = chance
        self._active: list[tuple[float, int, Fault]] = []
        self._began = 0.0
        self.begun = 0

    def run(self, seconds: float, pause: float, meanwhile: Callable[[], None]) -> None:
        """Make faults for some seconds, with pauses of *pause* seconds on average; heal them."""
        self._began = time.monotonic()
        end = self._began + seconds
        next_at = self._began + pause
        while time.monotonic() < end:
            self._heal(time.monotonic())
            meanwhile()
            if time.monotonic() >= next_at:
                self._begin_one()
                next_at = time.monotonic() + self._chance.uniform(0, 2 * pause)
            time.sleep(0.05)
        self._heal(float("inf"))

    def _begin_one(self) -> None:
        if any(fault.alone for _, _, fault in self._active):
            return
        active = {id(fault) for _, _, fault in self._active}
        idle = (fault for fault in self._faults if id(fault) not in active)
        rough = (time.monotonic() - self._began) % ROUND < ROUGH
        possible = [f for f in idle if (rough or not f.shared) and f.possible()]
        if not possible:
            return
        (fault,) = self._chance.choices(possible, [fault.weight for fault in possible])
        if fault.alone:
            self._heal(float("inf"))
        self.begun += 1
        number = self.begun
        # Written down before it begins, so that nothing happens by it earlier.
        self._history.write("fault", fault=number, name=fault.name)
        life = fault.begin()
        if life is not None:
            self._history.write("concerns", fault=number, of=life)
        until = time.monotonic() + self._chance.uniform(*fault.seconds)
        self._active.append((until, number, fault))
        if fault.seconds[1] == 0.0:
            self._heal_one(self._active[-1])

    def _heal(self, now: float) -> None:
        for active in [active for active in self._active if active[0] <= now]:
            self._heal_one(active)

    def _heal_one(self, active: tuple[float, int, Fault]) -> None:
        self._active.remove(active)
        active[2].heal()
        self._history.write("healed", fault=active[1])
