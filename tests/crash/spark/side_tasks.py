"""
The driver that is killed while it runs side tasks: streams of shovels and sweeps over one store.

    python -m tests.crash.spark.side_tasks '{"store": …}'

Takes a `TaskJob` as JSON, starts a stream for each checkpoint, and says "up". As a script with
``--campaign``, it is killed 50 times on each catalog, in all of its processes or in one worker.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc
from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.holders import leases
from queue_core.catalog.record_tables import task_runs
from queue_core.upkeep.leader.lease import ROLE
from queue_core.values.address import Address
from tests import servers
from tests.books import audit
from tests.crash.spark.driver import session
from tests.crash.spark.lives import Life, Work, kill_one, wait_for
from tests.dump import backdate
from tests.factories import make_queue, orders

QUEUES = ("orders", "bills")
#: Where a driver or a worker dies, besides random moments.
POINTS = (
    "task.before_claim", "task.claimed", "task.done", "sweep.before_commit", "sweep.committed",
    "shovel.before_commit", "shovel.committed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TaskJob(Work):
    """The streams of a driver: each has a checkpoint of its own."""

    store: dict[str, str]
    checkpoints: list[str]
    master: str = "local[2,6]"


def main(text: str) -> None:
    """Run the streams until the process dies."""
    job = TaskJob.from_json(text)
    spark = session(job.master)
    for checkpoint in job.checkpoints:
        reader = spark.readStream.format("ignis").options(**job.store, task="shovel,sweep")
        reports = reader.options(interval="200ms", refreshInterval="1s").load()
        reports.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    print("up", flush=True)
    spark.streams.awaitAnyTermination()
    sys.exit(1)


class TaskScene:
    """Two queues in which messages get stuck or fail, and what must become of them."""

    def __init__(self, folder: Path, address: Address) -> None:
        self.address = address
        self.said = folder / "stderr"
        self.loaded: Counter[str] = Counter()
        self.sidelined: Counter[str] = Counter()
        self.swept: Counter[str] = Counter()
        given = {"catalog": address.catalog, "storage": address.storage}
        checkpoints = [str(folder / f"checkpoint-{name}") for name in "ab"]
        self.job = TaskJob(store=given, checkpoints=checkpoints)
        with self.store() as store:
            for name in QUEUES:
                make_queue(store, name, shards=4, retry=None, shovel_interval=3600)

    def store(self) -> Store:
        """The store, opened; to be closed by the caller."""
        return Store(self.address)

    def go_wrong(self, count: int) -> None:
        """Load messages: half of them fail, and the consumer of the others dies long ago."""
        with self.store() as store:
            for name in QUEUES:
                queue = store.queue(name)
                queue.load(orders(count, first=self.loaded[name]))
                self.loaded[name] += count
                self.sidelined[name] += queue.sideline(queue.fire(count // 2))
                self.swept[name] += len(queue.fire(count - count // 2).messages)
            backdate(store, 7200)

    def pass_time(self) -> None:
        """Let the leases and the claims of dead drivers run out."""
        with self.store() as store:
            store.catalog.write(lambda c: leases.forget(c, ROLE))
            store.catalog.write(lambda c: c.execute(update(task_runs).values(held_until=0)))
        # Spark refuses a checkpoint whose first offset was being written when its driver died.
        for checkpoint in self.job.checkpoints:
            for file in Path(checkpoint, "offsets").glob(".*.tmp*"):
                file.unlink(missing_ok=True)

    def has_no_open_run(self) -> bool:
        """Whether every run that was claimed is done."""
        with Store(self.address, create=False) as store, store.catalog.read() as connection:
            open_runs = task_runs.select().where(task_runs.c.done_at.is_(None))
            return connection.execute(open_runs).first() is None

    def is_done(self) -> bool:
        """Whether nothing is stuck, and nothing failed that is not in main again."""
        with self.store() as store:
            return all(self._counts(store, name) == self.expected(name) for name in QUEUES)

    def expected(self, name: str) -> tuple[int, int, int]:
        """How many messages wait in main, were swept, and were shovelled, in the end."""
        failed = self.sidelined[name] + self.swept[name]
        return self.loaded[name], self.swept[name], failed

    @staticmethod
    def _counts(store: Store, name: str) -> tuple[int, int, int]:
        figures = store.queue(name).metadata()

        def total(column: str, magazine: str) -> int:
            rows = figures.filter(pc.field("magazine") == magazine)
            return sum(rows.column(column).to_pylist())

        return total("waiting", "main"), total("swept", "main"), total("shovelled", "sideline")

    def wrong(self) -> list[str]:
        """What is not as it must be at the end."""
        faults = []
        with self.store() as store:
            audit(store)
            faults += [str(row) for row in store.admin.fsck(deep=True).to_pylist()]
            reports = store.view("reports")
            for name in QUEUES:
                numbers = sorted(store.queue(name).browse().column("number").to_pylist())
                if numbers != list(range(self.loaded[name])):
                    faults.append(f"{name}: messages were lost or doubled")
                if (found := self._counts(store, name)) != self.expected(name):
                    faults.append(f"{name}: {found} instead of {self.expected(name)}")
                for task, count in (("sweep", self.swept), ("shovel", None)):
                    told = reports.filter(
                        (pc.field("queue") == name) & (pc.field("task") == task)
                    ).column("moved")
                    wanted = count[name] if count else self.expected(name)[2]
                    if (moved := sum(told.to_pylist())) != wanted:
                        faults.append(f"{name}: {task} reports {moved} moves, not {wanted}")
            with store.catalog.read() as connection:
                open_runs = task_runs.select().where(task_runs.c.done_at.is_(None))
                faults += [f"not done: {row}" for row in connection.execute(open_runs)]
        return faults


def die(scene: TaskScene, chance: random.Random, point: str | None, victim: str) -> str:
    """Let a driver, or one of its workers, die; return how."""
    scene.pass_time()
    scene.go_wrong(chance.choice([10, 40]))
    module = "tests.crash.spark.side_tasks"
    if point is not None:
        job = replace(scene.job, fault=f"{point}:{chance.choice([1, 2])}=session")
        with Life(job, scene.said, module) as life:
            life.wait_until_up()
            wait_for(lambda: not life.is_alive() or scene.is_done(), "a death")
            return f"{point}, {'the driver died' if not life.is_alive() else 'nobody passed it'}"
    with Life(scene.job, scene.said, module) as life:
        life.wait_until_up()
        time.sleep(chance.uniform(0.5, 6.0))
        if victim == "worker":
            for _ in range(3):
                kill_one(life.workers(), chance)
                time.sleep(chance.uniform(0.1, 0.6))
            # Of two streams that start tasks at once, Spark itself may fail to send one.
            wait_for(lambda: not life.is_alive() or scene.is_done(), "the end of the work")
            went_on = "went on" if life.is_alive() else "ended too"
            return f"three workers died, and the driver {went_on}"
    return "the driver died at a random moment"


def finish(scene: TaskScene) -> list[str]:
    """Let a last driver end the work; return what is wrong."""
    scene.pass_time()
    with Life(scene.job, scene.said, "tests.crash.spark.side_tasks") as life:
        life.wait_until_up()
        wait_for(scene.is_done, "the end of the work")
        wait_for(scene.has_no_open_run, "the end of the rounds that are claimed")
    return scene.wrong()


def campaign(kills: int, seed: int, catalogs: Sequence[str]) -> int:
    """Kill on each of some catalogs; return 1 if anything is wrong."""
    failed = 0
    for catalog in catalogs:
        chance = random.Random(seed)
        folder = Path(tempfile.mkdtemp(prefix=f"side-tasks-{catalog}-"))
        with servers.address_in(folder, catalog) as address:
            Store(address).close()
            scene = TaskScene(folder, address)
            began = time.monotonic()
            for number in range(kills):
                point = chance.choice([*POINTS, None, None, None])
                how = die(scene, chance, point, chance.choice(["driver", "worker"]))
                print(f"{catalog} {number + 1}/{kills}: {how}", flush=True)
            wrong = finish(scene)
            seconds = time.monotonic() - began
            print(f"{catalog}: {kills} kills in {seconds:.0f} s: {scene.loaded}", *wrong, sep="\n")
            failed += bool(wrong)
    return int(failed > 0)


if __name__ == "__main__":
    if "--campaign" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--campaign", action="store_true")
        parser.add_argument("--kills", type=int, default=50)
        parser.add_argument("--seed", type=int, default=7)
        parser.add_argument("--catalog", choices=servers.CATALOGS, action="append")
        asked = parser.parse_args()
        sys.exit(campaign(asked.kills, asked.seed, asked.catalog or servers.CATALOGS))
    main(sys.argv[1])
