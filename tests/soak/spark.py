"""The Spark query of a soak, which copies `in` to `out`: a real driver that dies and comes back."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.crash.spark import checkpoint
from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life
from tests.soak.driver import STALE
from tests.soak.history import History
from tests.soak.nemesis import Fault

#: Seconds between the end of a driver and its next start.
_REST = 1.0
#: Seconds after which a driver that commits nothing may be hit by a fault again.
_PATIENCE = 180.0


class Copier:
    """Keeps one driver alive, and its checkpoint."""

    def __init__(self, store: Mapping[str, str], folder: Path, history: History) -> None:
        self.checkpoint = folder / "checkpoint"
        self._folder = folder
        self._newest = folder / "checkpoint-newest"
        self._job = Job(
            store=dict(store),
            checkpoint=str(self.checkpoint),
            limit=500,
            # With the option `consumer`, a restore may lose what was published after the copy.
            consumer=None,
            until_empty=False,
        )
        self._history = history
        self._life: Life | None = None
        #: When it started, how many batches were committed then, and when the next may start.
        self._started, self._committed, self._start_at = 0.0, 0, 0.0
        self.lives = 0
        #: Enters the machine on which it runs.
        self.place: Callable[[], AbstractContextManager[None]] = nullcontext

    def check(self) -> None:
        """Start the driver if there is none, as the supervisor of a service does."""
        if self._life is not None and not self._life.is_alive():
            said = self._life.last_words()
            self._history.write("error", kind="driver ended", verb="spark", text=said[-1500:])
            self.kill()
            if STALE in said and self._newest.exists():
                # What the error asks for.
                _replace(self.checkpoint, self._newest)
        if self._life is None and time.monotonic() > self._start_at:
            self.lives += 1
            said_to = self._folder / f"spark-{self.lives}.log"
            histories = str(self._folder / "history")
            self._committed = checkpoint.committed(self.checkpoint)
            self._started = time.monotonic()
            with self.place():
                self._life = Life(
                    self._job, said_to, "tests.soak.driver", histories, f"spark-{self.lives}"
                )

    def has_got_on(self) -> bool:
        """Whether the driver has committed a batch in this life, or has had long enough to."""
        if self._life is None:
            return False
        committed = checkpoint.committed(self.checkpoint) > self._committed
        return committed or time.monotonic() - self._started > _PATIENCE

    def kill(self) -> None:
        """Kill the driver with its JVM and its workers."""
        if self._life is not None:
            self._life.kill()
            self._life = None
            self._start_at = time.monotonic() + _REST

    def pause(self) -> bool:
        """Stop its JVM, if there is one already."""
        try:
            if self._life is not None:
                self._life.pause()
                return True
        except (ValueError, ProcessLookupError):
            pass
        return False

    def go_on(self) -> None:
        """Let its JVM continue."""
        try:
            if self._life is not None:
                self._life.go_on()
        except (ValueError, ProcessLookupError):
            return

    def keep(self, name: str) -> None:
        """Keep a copy of the checkpoint, of a driver that is dead."""
        if self.checkpoint.exists():
            _replace(self.checkpoint.with_name(name), self.checkpoint)

    def put_back(self, name: str) -> None:
        """Put a copy of the checkpoint back, and keep the newest."""
        if self.checkpoint.with_name(name).exists():
            _replace(self._newest, self.checkpoint)
            _replace(self.checkpoint, self.checkpoint.with_name(name))


class SparkKill(Fault):
    """The driver is killed with all its processes; its checkpoint may lose its last notes."""

    def __init__(self, copier: Copier, chance: random.Random, loss: str) -> None:
        self.name = "spark killed" if loss == "nothing" else f"spark killed, {loss}"
        self.weight = 0.3 if loss == "nothing" else 0.15
        self._copier = copier
        self._chance = chance
        self._loss = loss

    def possible(self) -> bool:
        return self._copier.has_got_on()

    def begin(self) -> str | None:
        copier = self._copier
        copier.kill()
        if self._loss == "commit lost":
            checkpoint.forget_commit(copier.checkpoint)
        elif self._loss == "batch lost" and checkpoint.committed(copier.checkpoint) > 1:
            # Without its first batch, a checkpoint is a new query's, and is refused for ever.
            checkpoint.forget_batch(copier.checkpoint)
        elif self._loss == "old checkpoint":
            copier.put_back("checkpoint-old")
        elif self._chance.random() < 0.5:
            copier.keep("checkpoint-old")
        return None


@dataclass(eq=False)
class SparkStop(Fault):
    """The JVM stands still for a while, as during a long collection of garbage."""

    name, weight, seconds = "spark stopped", 0.5, (0.5, 10.0)

    copier: Copier

    def possible(self) -> bool:
        return self.copier.has_got_on()

    def begin(self) -> str | None:
        self.copier.pause()
        return None

    def heal(self) -> None:
        self.copier.go_on()


def spark_faults(copier: Copier, chance: random.Random) -> list[Fault]:
    losses = ("nothing", "commit lost", "batch lost", "old checkpoint")
    return [SparkStop(copier), *(SparkKill(copier, chance, loss) for loss in losses)]


def _replace(target: Path, source: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
