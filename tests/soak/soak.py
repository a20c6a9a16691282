"""A soak from beginning to end: queues, processes, faults, an empty store, a verdict."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from queue_core import IgnisError, Store
from tests.referee import Verdict, check
from tests.soak.cast import Cast
from tests.soak.history import History, read
from tests.soak.nemesis import Fault, Kill, Nemesis, Stop
from tests.soak.pauses import Pause, pauses
from tests.soak.workload import BOUND, Scene, drain, make_queues

#: Seconds between two faults, on average.
PAUSE_SECONDS = 0.8
#: Seconds in which the processes may empty the queues, and then end.
EMPTY_SECONDS, _END_SECONDS = 60.0, 90.0
#: Seconds between two looks at the size of the bounded queue.
_LOOK_SECONDS = 1.0


@dataclass(kw_only=True)
class Result:
    """The result of a soak."""

    seed: int
    seconds: float
    #: When it ended, by the catalog's clock: microseconds since 1970.
    ended_at: int
    verdict: Verdict
    #: How often each fault was made.
    faults: dict[str, int]
    #: How long work stood still at the faults of a kind.
    pauses: dict[str, Pause]
    #: How often each error was raised to a caller.
    errors: dict[str, int]
    #: Processes that ended unexpectedly, each with its last words.
    broken: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether every promise was kept, and nothing broke."""
        return self.verdict.right and not self.broken

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        pauses = {name: asdict(each) for name, each in self.pauses.items()}
        more = {"verdict": self.verdict.as_dict(), "pauses": pauses, "right": self.right}
        return {**vars(self), **more}


class Soak:
    """
    One soak in a store.

    Args:
        scene: The address of the store, and a new folder for the histories.
        seed: Decides the order of faults, and what each process does.
        copied: Queues that something copies to others, which the checker follows.
        empty_seconds: Seconds in which the processes may empty the queues at the end.
    """

    def __init__(
        self,
        scene: Scene,
        seed: int,
        copied: dict[str, str] | None = None,
        empty_seconds: float = EMPTY_SECONDS,
    ) -> None:
        self.scene = scene
        self.seed = seed
        self.copied = copied or {}
        self._empty_seconds = empty_seconds
        self.chance = random.Random(seed)
        self.history = History(scene.folder, "nemesis")
        self.cast = Cast(scene, self.history, self.chance)
        self._watching = threading.Event()
        #: Held while the thread that watches the bounded queue has the store open. A fault that
        #: replaces the file of a catalog must hold it.
        self.look = threading.Lock()
        #: Called repeatedly during the faults, and while the queues are emptied.
        self.meanwhile: list[Callable[[], None]] = [self.cast.check]

    def faults(self) -> list[Fault]:
        """Return the faults that need nothing but the processes."""
        return [Kill(self.cast), Stop(self.cast), Stop(self.cast)]

    def run(self, seconds: float, faults: Sequence[Fault], pause: float = PAUSE_SECONDS) -> Result:
        """Run the soak; return its result after everything has ended."""
        began = time.monotonic()
        with Store(self.scene.address) as store:
            make_queues(store, self.scene)
        nemesis = Nemesis(faults, self.history, self.chance)
        # A thread, because a look may hang during a fault and must not prolong it.
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        try:
            self.cast.start()
            nemesis.run(seconds, pause, self._meanwhile)
            self.scene.tell("finishing")
            self._wait_until_empty()
            self.scene.tell("stop")
            self.cast.end(_END_SECONDS)
        finally:
            self.scene.tell("stop")
            self.cast.kill_all()
            self._watching.set()
            watcher.join(_END_SECONDS)
        with Store(self.scene.address) as store:
            left = drain(store, self.scene, History(self.scene.folder, "drain"))
            ended_at = store.catalog.now()
        self.history.close()
        return self._result(time.monotonic() - began, ended_at, left)

    def _result(self, seconds: float, ended_at: int, left: dict[str, int]) -> Result:
        entries = list(read(self.scene.folder))
        broken = [f"{count} messages are left in {name}" for name, count in left.items()]
        verdict = check(entries, self.scene.rules(copied=self.copied))
        if not verdict.queues:
            broken.append("no message was loaded: give the soak more time")
        return Result(
            seed=self.seed,
            seconds=seconds,
            ended_at=ended_at,
            verdict=verdict,
            faults=_counted(entries, "fault", "name"),
            pauses=pauses(entries),
            errors=_counted(entries, "error", "kind"),
            broken=broken + self.cast.broken,
        )

    def _meanwhile(self) -> None:
        for call in self.meanwhile:
            call()

    def _wait_until_empty(self) -> None:
        end = time.monotonic() + self._empty_seconds
        while time.monotonic() < end:
            self._meanwhile()
            with suppress(IgnisError), Store(self.scene.address, create=False) as store:
                rows = store.view("queues").to_pylist()
                if not any(self._is_left(row) for row in rows):
                    return
            time.sleep(0.5)

    def _is_left(self, row: dict[str, Any]) -> bool:
        """Whether a queue has messages that are to be waited for."""
        names = {self.scene.prefix + name for name in self.scene.queues}
        # What a process held that was killed while the clock was ahead is swept a day later; the
        # drain gives it back. What the copier holds, it must finish itself.
        copied = row["queue"].removeprefix(self.scene.prefix) in self.copied
        held = row["in_flight"] if copied else 0
        return row["queue"] in names and bool(row["waiting"] or row["sidelined"] or held)

    def _watch(self) -> None:
        """Repeatedly write down how full the bounded queue is."""
        name = self.scene.prefix + "bounded"
        while not self._watching.wait(_LOOK_SECONDS):
            with (
                self.look,
                suppress(IgnisError),
                Store(self.scene.address, create=False) as store,
            ):
                rows = store.view("queues", name).to_pylist()
                size = sum(row["waiting"] + row["in_flight"] for row in rows)
                self.history.write("size", queue="bounded", size=size, bound=BOUND)


def _counted(entries: list[dict[str, Any]], what: str, by: str) -> dict[str, int]:
    found = Counter(entry[by] for entry in entries if entry["what"] == what)
    return dict(found.most_common())
