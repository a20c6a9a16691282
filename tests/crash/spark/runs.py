"""A run: one scene, a driver that dies again and again, and a last life that empties the queue."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from queue_core.support import faults
from tests.crash.spark import checkpoint, copied
from tests.crash.spark.driver import Job
from tests.crash.spark.lives import Life, wait_for
from tests.crash.spark.readers import Reading, ReadScene
from tests.crash.spark.scene import Scene
from tests.referee import Counts

#: Where a load stands that finds no room, which there is always in a queue without bounds.
WITHOUT_ROOM = ("load.waiting", "load.offered", "load.before_withdrawal", "load.withdrawn")
#: Every point that a copying driver passes, in whichever of its processes.
POINTS = tuple(
    name
    for name in faults.POINTS
    if name.split(".")[0] in ("source", "sink", "load", "fire", "acknowledge")
    and name not in WITHOUT_ROOM
)
#: Those that a driver passes that reads subscriptions too.
READING = (*POINTS, "take_in.before_commit", "take_in.committed")
#: What is done to the checkpoint after a death.
LOSSES: dict[str, Callable[[Path], str]] = {
    "nothing": lambda _: "",
    "commit": checkpoint.forget_commit,
    "batch": checkpoint.forget_batch,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a life: at a named point, or some seconds after an action."""

    point: str | None = None
    passage: int = 1
    #: Who dies at the point (`queue_core.support.faults`): all processes, or the one that passes
    #: it alone.
    action: str = "session"
    seconds: float = 0.0
    #: Whether the seconds begin with the first batch that this life commits, or with its query.
    working: bool = False
    #: One of `LOSSES`.
    loss: str = "nothing"

    def __str__(self) -> str:
        if self.point:
            return f"{self.point}:{self.passage}={self.action}"
        return f"{self.seconds:.2f} s after {'a batch' if self.working else 'its start'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obituary:
    """The result of a life."""

    death: Death | None
    batches: int
    #: What the checkpoint lost afterwards.
    lost: str
    seconds: float
    counts: Counts
    wrong: tuple[str, ...] = ()


def at_points(
    points: Iterable[str] = POINTS, *, action: str = "session", loss: str = "nothing"
) -> list[Death]:
    """A death at each point, at its first and at a later passage."""
    return [
        Death(point=point, passage=passage, action=action, loss=loss)
        for point in points
        for passage in (1, 3)
    ]


def at_random(
    times: int, chance: random.Random, losses: Iterable[str] = ("nothing",)
) -> list[Death]:
    """Deaths at random moments: some while a driver begins, most while it works."""
    among = list(losses)
    return [
        Death(
            seconds=chance.uniform(0.5, 8.0),
            working=chance.random() < 0.75,
            loss=chance.choice(among),
        )
        for _ in range(times)
    ]


def live_through(
    scene: Scene | ReadScene,
    deaths: Iterable[Death],
    job: Job | Reading,
    last: Job | Reading | None = None,
) -> Iterator[Obituary]:
    """Start the driver, let it die, and so on for each death; then let it empty the queue."""
    for death in deaths:
        yield _live(scene, job, death)
    yield _live(scene, last or job, None)


def _live(scene: Scene | ReadScene, job: Job | Reading, death: Death | None) -> Obituary:
    began = time.monotonic()
    before = checkpoint.committed(scene.checkpoint)
    wrong = _end(scene, job, death)
    batches = checkpoint.committed(scene.checkpoint) - before
    if death:
        lost = LOSSES[death.loss](scene.checkpoint)
        counts = scene.count() if isinstance(scene, ReadScene) else copied.count(scene)
        wrong += scene.between() if isinstance(scene, ReadScene) else []
    else:
        lost = ""
        ended = scene.at_the_end() if isinstance(scene, ReadScene) else copied.at_the_end(scene)
        counts, found = ended
        wrong += found
    return Obituary(
        death=death,
        batches=batches,
        lost=lost,
        seconds=time.monotonic() - began,
        counts=counts,
        wrong=tuple(wrong),
    )


def _end(scene: Scene | ReadScene, job: Job | Reading, death: Death | None) -> list[str]:
    """Live until the end; what went another way than it should."""
    if death is None:
        return _until(0, scene, job)
    if death.point:
        # Where one process dies alone, Spark fails the query.
        expected = -signal.SIGKILL if death.action == "session" else 1
        return _until(expected, scene, replace(job, fault=str(death)))
    with Life(replace(job, until_empty=False), scene.said, *job.command) as life:
        life.wait_until_up()
        if death.working and scene.waiting():
            before = checkpoint.committed(scene.checkpoint)
            wait_for(lambda: checkpoint.committed(scene.checkpoint) > before, "a batch")
        time.sleep(death.seconds)
        return [] if life.is_alive() else [f"the driver ended by itself:\n{life.last_words()}"]


def _until(expected: int, scene: Scene | ReadScene, job: Job | Reading) -> list[str]:
    with Life(job, scene.said, *job.command) as life:
        code = life.wait()
        if code == expected:
            return []
        return [f"{job.fault}: ended with {code}, not {expected}:\n{life.last_words()}"]
