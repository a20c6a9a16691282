"""An ensemble: many processes at work on one store at once, until nothing is left to do."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from queue_core import Store
from tests.children import Child, Journal
from tests.processes import roles
from tests.processes.roles import Scene


@dataclass
class Part:
    """A role, and the process that plays it now."""

    role: object
    name: str
    args: tuple[int, ...]
    journals: list[Journal] = field(default_factory=list)
    child: Child | None = None


class Ensemble:
    """Eight producers, four consumers, and one process for each of four side tasks."""

    def __init__(self, scene: Scene, *, loads: int, loaders: int = 8, firers: int = 4, seed: int):
        self.scene = scene
        self._chance = random.Random(seed)
        self._loads = loads
        #: Seconds after which the ensemble is stuck.
        self._patience = 120.0 + loads
        self.parts = [
            *(Part(roles.load, f"loader-{n}", (n,)) for n in range(loaders)),
            *(Part(roles.fire_and_settle, f"firer-{n}", (n,)) for n in range(firers)),
            Part(roles.shovel, "shoveller", ()),
            Part(roles.sweep, "sweeper", ()),
            Part(roles.compact, "compactor", ()),
            Part(roles.vacuum, "vacuumer", ()),
        ]
        self.kills = 0

    def run(self, store: Store, *, kills: int = 0) -> None:
        """Play it to its end. Kill and replace *kills* processes meanwhile."""
        for part in self.parts:
            self._begin(part)
        try:
            self._until_loaded(kills)
            self.scene.tell("finishing")
            self._until_nothing_is_left(store)
            self.scene.tell("stop")
            for part in self.parts:
                self._check_ended(part)
        finally:
            for part in self.parts:
                if part.child is not None and part.child.running:
                    part.child.kill()

    def entries(self, *what: str) -> Iterator[dict]:
        """The entries of the processes, of all their lives."""
        for part in self.parts:
            for journal in part.journals:
                yield from journal.read(*what)

    def _begin(self, part: Part) -> None:
        life = len(part.journals)
        journal = Journal(self.scene.folder / f"{part.name}.{life}")
        args = (*part.args, self._chance.randrange(1 << 30))
        if part.role is roles.load:
            done, first = _progress(part)
            args = (*part.args, self._loads - done, first, args[-1])
        part.journals.append(journal)
        log = self.scene.folder / f"{part.name}.{life}.log"
        part.child = Child(roles.play, part.role, self.scene, journal, *args, log=log)

    def _until_loaded(self, kills: int) -> None:
        loaders = [part for part in self.parts if part.role is roles.load]
        end = time.monotonic() + self._patience
        while any(part.child.running for part in loaders) or self.kills < kills:
            assert time.monotonic() < end, "the loaders do not end"
            self._check_living()
            if self.kills < kills:
                self._kill_one()
            time.sleep(0.02)

    def _kill_one(self) -> None:
        time.sleep(self._chance.uniform(0, 0.2))
        part = self._chance.choice([part for part in self.parts if part.child.running])
        part.child.kill()
        self.kills += 1
        self._begin(part)

    def _until_nothing_is_left(self, store: Store) -> None:
        end = time.monotonic() + self._patience
        while True:
            self._check_living()
            (queue,) = store.view("queues").to_pylist()
            if queue["waiting"] + queue["in_flight"] + queue["sidelined"] == 0:
                return
            assert time.monotonic() < end, f"something is left: {queue}"
            time.sleep(0.05)

    def _check_living(self) -> None:
        """No process has failed."""
        for part in self.parts:
            if not part.child.running:
                self._check_ended(part)

    def _check_ended(self, part: Part) -> None:
        code = part.child.wait()
        assert code == 0, f"{part.name} ended with {code}: {part.child.output()}"


def _progress(part: Part) -> tuple[int, int]:
    """How many loads a loader has begun in its former lives, and the number of its next message."""
    begun = [entry for journal in part.journals for entry in journal.read("loading")]
    return len(begun), max((entry["first"] + entry["count"] for entry in begun), default=0)
