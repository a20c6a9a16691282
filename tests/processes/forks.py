"""
Fork workers from a process that uses a store: ``python -m tests.processes.forks --rounds 20``.

A parent has a store in use in one of several ways, and forks workers, as `multiprocessing` does by
default on Linux up to Python 3.13. The workers load, and write down each load that has returned.
Meanwhile, the parent may close its store. Then each loaded message must be there once, and the
store in order. A worker may be refused, with an error that says what to do. Ends with an error if
a message was lost or doubled, the store was damaged, a worker hung, or any other error was raised.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sqlite3
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from queue_core import ConsumerPool, IgnisError, Invalid, Queue, Store
from queue_core.values.address import Address
from tests import servers
from tests.children import PATIENCE, Child, Journal

SCHEMA = pa.schema([("worker", pa.int64()), ("number", pa.int64())])
WORKERS = 2
#: The loads of each worker before the parent goes on, and after it has closed its store.
BEFORE, AFTER = 5, 25
#: The parent's own messages, which its pool deletes.
OTHER = "other"


@dataclass(frozen=True)
class Kind:
    """What a parent does when it forks, and then."""

    #: Begins what the parent's threads do.
    use: Callable[[Store, ExitStack], None]
    #: Whether the parent closes its store while the workers load.
    closes: bool = True
    #: Whether the workers load by the store of the parent; if not, each opens its own.
    inherits: bool = False


def _nothing(store: Store, stack: ExitStack) -> None:
    """Leave an idle connection."""


def _side_tasks(store: Store, stack: ExitStack) -> None:
    stack.enter_context(store.side_tasks())


def _pool(store: Store, stack: ExitStack) -> None:
    stack.enter_context(ConsumerPool(store, OTHER, lambda row: True, concurrency=2))


def _in_threads(*works: Callable[[threading.Event], None]) -> ExitStack:
    """Repeat each work in a thread of its own until the stack is closed."""
    ended = threading.Event()

    def repeat(work: Callable[[threading.Event], None]) -> None:
        while not ended.is_set():
            work(ended)

    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
    stack = ExitStack()
    for thread in threads:
        thread.start()
        stack.callback(thread.join)
    stack.callback(ended.set)
    return stack


def _firing(count: int) -> Callable[[Store, ExitStack], None]:
    def begin(store: Store, stack: ExitStack) -> None:
        queue = store.queue(OTHER)
        works = [lambda _: queue.delete(queue.fire(1, timeout=0.5))] * count
        stack.enter_context(_in_threads(*works))
        # Long enough that they wait.
        time.sleep(0.2)

    return begin


def _busy(store: Store, stack: ExitStack) -> None:
    """Load in two threads, and handle by a pool."""
    _pool(store, stack)
    queue = store.queue(OTHER)
    loads = [lambda _: queue.load([{"worker": -1, "number": 0}])] * 2
    stack.enter_context(_in_threads(*loads))
    time.sleep(0.2)


def _own_connection(store: Store, stack: ExitStack) -> None:
    """Leave a connection of `sqlite3`, as of a caller with tables in the catalog's database."""
    file = store.catalog.file
    if file is not None:
        driver = stack.enter_context(closing(sqlite3.connect(file)))
        driver.execute("SELECT count(*) FROM queues").fetchall()


KINDS = {
    "side tasks": Kind(_side_tasks),
    "side tasks, the parent stays": Kind(_side_tasks, closes=False),
    "pool": Kind(_pool),
    "a thread that fires": Kind(_firing(1)),
    "two threads that fire": Kind(_firing(2)),
    "two threads that fire, inherited store": Kind(_firing(2), inherits=True),
    "threads that load and a pool": Kind(_busy, closes=False),
    "threads that load and a pool, inherited store": Kind(_busy, closes=False, inherits=True),
    "nothing": Kind(_nothing),
    "nothing, inherited store": Kind(_nothing, inherits=True),
    "a connection of the caller": Kind(_own_connection),
}


@dataclass
class Found:
    """What became of the loads of some rounds."""

    counts: Counter[str] = field(default_factory=Counter)
    #: The errors of workers that are neither a load nor the refusal, with the number of each.
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, doubled or damaged, and every worker ended as it should."""
        bad = ("lost", "doubled", "damaged", "hung")
        return not self.errors and not any(self.counts[name] for name in bad)


def play(address: Address, kind: str, folder: Path) -> Found:
    """Let a parent fork workers, and count what became of their loads."""
    with Store(address) as store:
        for name in ("orders", OTHER):
            store.create_queue(name, SCHEMA)
    parent = Child(_parent, address, kind, folder, log=folder / "parent.log")
    assert parent.wait(3 * PATIENCE) == 0, parent.output()
    found = Found()
    acknowledged: set[tuple[int, int]] = set()
    for worker in range(WORKERS):
        journal = Journal(folder / f"{worker}.jsonl")
        acknowledged |= {(worker, entry["number"]) for entry in journal.read("loaded")}
        found.counts["refused"] += len(journal.read("refused"))
        found.errors.update(entry["why"] for entry in journal.read("failed"))
    found.counts["hung"] = len(Journal(folder / "parent.jsonl").read("hung"))
    found.counts["acknowledged"] = len(acknowledged)
    try:
        there = _read(address)
    except (IgnisError, sqlite3.Error) as error:
        found.counts["damaged"] += 1
        found.counts["lost"] += len(acknowledged)
        found.errors[str(error)] += 1
        return found
    found.counts["lost"] += len(acknowledged - there.keys())
    found.counts["doubled"] += sum(times - 1 for times in there.values())
    return found


def _read(address: Address) -> Counter[tuple[int, int]]:
    """Return the messages of a store that is in order."""
    with Store(address, create=False) as store:
        if store.catalog.file is not None:
            with closing(sqlite3.connect(store.catalog.file)) as driver:
                (answer,) = driver.execute("PRAGMA integrity_check").fetchone()
                if answer != "ok":
                    raise sqlite3.DatabaseError(answer)
        findings = store.fsck(deep=True)
        assert findings.num_rows == 0, findings.to_pylist()
        rows = store.queue("orders").browse().select(["worker", "number"]).to_pylist()
    return Counter((row["worker"], row["number"]) for row in rows)


def _parent(address: Address, kind: str, folder: Path) -> None:
    given = KINDS[kind]
    store = Store(address)
    with ExitStack() as stack:
        given.use(store, stack)
        workers = [_forked(address, store, given, folder, at) for at in range(WORKERS)]
        _wait(lambda: all(_is_under_way(folder, at) for at in range(WORKERS)))
        if not given.closes:
            _finish(folder, workers)
    store.close()
    _finish(folder, workers)


def _finish(folder: Path, workers: list[int]) -> None:
    """Let the workers go on to their end."""
    (folder / "closed").touch()
    for pid in workers:
        if not _wait(lambda pid=pid: _has_ended(pid)):
            Journal(folder / "parent.jsonl").write("hung")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    workers.clear()


def _is_under_way(folder: Path, worker: int) -> bool:
    journal = Journal(folder / f"{worker}.jsonl")
    return len(journal.read("loaded", "failed")) >= BEFORE or bool(journal.read("ended"))


def _has_ended(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _wait(condition: Callable[[], bool]) -> bool:
    """Wait for something; return False if it does not happen."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _forked(address: Address, store: Store, kind: Kind, folder: Path, number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    journal = Journal(folder / f"{number}.jsonl")
    try:
        _work(lambda: store if kind.inherits else Store(address), journal, folder, number)
    except BaseException:  # noqa: BLE001 - it must not return into the frames of the parent
        journal.write("failed", why=traceback.format_exc())
    finally:
        journal.write("ended")
        os._exit(0)


def _work(opened: Callable[[], Store], journal: Journal, folder: Path, worker: int) -> None:
    queue: Queue | None = None
    left = AFTER
    for number in itertools.count():
        left -= (folder / "closed").exists()
        if not left:
            return
        try:
            queue = queue or opened().queue("orders")
            queue.load([{"worker": worker, "number": number}])
        except Invalid as error:
            if "spawn" not in str(error):
                raise
            journal.write("refused")
            return
        except IgnisError as error:
            journal.write("failed", why=f"{type(error).__name__}: {error}")
        else:
            journal.write("loaded", number=number)


def main() -> int:
    """Run rounds, and print a line for each catalog and each kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.processes.forks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of each kind, on each catalog")
    parser.add_argument("--catalog", choices=("sqlite", "postgresql"), action="append")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    given = parser.parse_args()
    good = True
    for catalog in given.catalog or ("sqlite", "postgresql"):
        for kind in given.kind or KINDS:
            found, bad = Found(), 0
            for _ in range(given.rounds):
                with _address(catalog) as (address, folder):
                    one = play(address, kind, folder)
                found.counts += one.counts
                found.errors += one.errors
                bad += not one.is_good
            counts = ", ".join(f"{found.counts[name]} {name}" for name in SHOWN)
            print(f"{catalog}, {kind}: {given.rounds} rounds, {bad} bad; {counts}", flush=True)
            for why, times in found.errors.most_common(3):
                print(f"    {times} times: {why}", flush=True)
            good = good and not bad
    return 0 if good else 1


SHOWN = ("acknowledged", "refused", "lost", "doubled", "damaged", "hung")


@contextmanager
def _address(catalog: str) -> Iterator[tuple[Address, Path]]:
    with tempfile.TemporaryDirectory(prefix="ignis-forks-") as made, ExitStack() as stack:
        folder = Path(made)
        address = Address.of(folder / "store")
        if catalog == "postgresql":
            server = stack.enter_context(servers.postgres())
            address = Address(stack.enter_context(server.database()), str(folder / "store"))
        yield address, folder


if __name__ == "__main__":
    raise SystemExit(main())
