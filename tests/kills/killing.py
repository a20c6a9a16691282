"""
Kill processes at random while they work in transactions of their own, and compare both sides.

A caller has tables beside the catalog's: ``sales`` has a row for each message that it loads,
``done`` one for each message that it has deleted, and ``failed`` one for each failure that it has
noted. Each row is written in the transaction of its message. So at any time each sale is either a
message or done, and never both, and a message has failed at least as often as was noted.

A pool with an output returns some rows for each message: those in the queue ``results`` are done,
and none of their rows is missing or there twice.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import event

from queue_core import Conflict, ConsumerPool, Queue, Store, batch_handler
from queue_core.values.address import Address
from tests.books import audit
from tests.children import Child
from tests.waiting import PATIENCE

#: What a process did when it was killed.
BEGINS, BETWEEN, WITHIN, COMMITS = range(4)
DOING = ("begins", "between two statements", "within a statement", "at a commit")
SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False)])
#: A process is killed after at most this many statements, and then after at most so many seconds.
STATEMENTS = 250
SECONDS = 0.004
#: What a handler of batches notes of a failure.
NOTED = ("number", "_attempt")
#: Messages that one transaction of a pool's process loads.
LOADED = 4
#: Messages that one transaction fires.
FIRED = 3
#: Rows that a handler returns for each message.
RETURNED = 2


@dataclass
class Kills:
    """Kills of one kind, and what the processes did when they were killed."""

    doing: Counter[str] = field(default_factory=Counter)
    sold: int = 0
    done: int = 0


def prepare(store: Store) -> Queue:
    """Make the queue and the caller's tables."""
    with store.catalog.engine.connect() as connection:
        for table in ("sales", "done"):
            statement = f"CREATE TABLE {table} (number INTEGER NOT NULL UNIQUE)"
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "CREATE TABLE failed (number INTEGER, attempt INTEGER, UNIQUE (number, attempt))"
        )
        connection.commit()
    store.create_queue("results", SCHEMA, shards=4)
    return store.create_queue("sales", SCHEMA, shards=4)


def kill(store: Store, work: str, folder: Path, kills: int, seed: int) -> Kills:
    """Kill that many processes that *work*, and check after each; raises `AssertionError`."""
    found = Kills()
    ours, theirs = multiprocessing.Pipe()
    # It forks the processes that are killed, since a new one would take a second to get warm.
    log = folder / "nursery.log"
    nursery = Child(_nurse, store.address, work, kills, seed, folder / "doing", theirs, log=log)
    theirs.close()
    try:
        for _ in range(kills):
            assert ours.poll(PATIENCE), nursery.output()
            try:
                found.doing[DOING[ours.recv()]] += 1
            except EOFError:
                raise AssertionError(nursery.output()) from None
            nursery.wait_for_rollback(store)
            found.sold, found.done = check(store)
            ours.send("go on")
    finally:
        ours.close()
        nursery.kill()
    finish(store)
    audit(store)
    return found


def _nurse(address: Address, work: str, kills: int, seed: int, path: Path, pipe: Pipe) -> None:
    rng = random.Random(seed)
    _warm(address)
    path.write_bytes(bytes(8))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 8)
    for number in range(kills):
        shared[:] = bytes(8)
        child = os.fork()
        if child == 0:
            try:
                WORKS[work](address, (seed % 100 * 10_000 + number) * 100, shared)
            finally:
                os._exit(1)
        _wait(child, shared, rng.randint(1, STATEMENTS))
        time.sleep(rng.uniform(0, SECONDS))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "it ended by itself"
        pipe.send(shared[0])
        pipe.recv()


def _wait(child: int, shared: mmap.mmap, statements: int) -> None:
    """Wait until a process has begun that many statements, or has done all its work."""
    end = time.monotonic() + PATIENCE
    while struct.unpack("i", shared[4:])[0] < statements:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended by itself"
        assert time.monotonic() < end, "it does not get on"
        time.sleep(0.0005)


def _warm(address: Address) -> None:
    """Do everything once, and undo it."""
    with Store(address) as store, store.catalog.engine.connect() as connection:
        queue = store.queue("sales")
        if store.catalog.file is not None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        queue.within(connection).load(pa.table({"number": [-1]}))
        queue.within(connection).delete(queue.within(connection).fire())
        connection.rollback()


def check(store: Store) -> tuple[int, int]:
    """Compare the rows with the messages; return how many sales there are, and are done."""
    queue = store.queue("sales")
    with store.catalog.engine.connect() as connection:
        sold, done = (
            set(connection.exec_driver_sql(f"SELECT number FROM {table}").scalars())
            for table in ("sales", "done")
        )
        returned = Counter(store.queue("results").browse().column("number").to_pylist())
        torn = {number for number, count in returned.items() if count != RETURNED}
        assert not torn, f"rows are missing, or there twice: {sorted(torn)}"
        done |= set(returned)
        noted = connection.exec_driver_sql("SELECT number, attempt FROM failed").all()
    messages = pa.concat_tables([queue.browse(), queue.browse(magazine="sideline")])
    waiting = messages.column("number").to_pylist()
    attempts = dict(zip(waiting, messages.column("_attempt").to_pylist(), strict=True))
    early = [(number, attempt) for number, attempt in noted if attempts.get(number, 9) <= attempt]
    assert not early, f"a failure was noted, and its message has not failed: {early}"
    assert len(waiting) == len(set(waiting)), "a message is there twice"
    assert not done & set(waiting), f"done, and still there: {sorted(done & set(waiting))}"
    lost = sold - done - set(waiting)
    assert not lost, f"sold, and neither there nor done: {sorted(lost)}"
    strange = (done | set(waiting)) - sold
    assert not strange, f"there, and never sold: {sorted(strange)}"
    return len(sold), len(done)


def finish(store: Store) -> None:
    """Do what the killed processes have left: a message that nobody can handle is lost too."""
    queue = store.queue("sales")
    queue.sweep(older_than=0, dead_after=0)
    queue.shovel(force=True)
    with store.catalog.engine.connect() as connection:
        # A message that was lost with its process comes again in small firings.
        while len(left := queue.fire("all")):
            for number in left.messages.column("number").to_pylist():
                connection.exec_driver_sql(f"INSERT INTO done VALUES ({number})")
            connection.commit()
            queue.delete(left)
    sold, done = check(store)
    assert done == sold, f"{sold - done} messages cannot be done"


def trade(address: Address, first: int, shared: mmap.mmap) -> None:
    """Load, fire and settle in transactions of the caller, until killed."""
    rng = random.Random(first)
    tell = _telling(shared)
    with Store(address) as store:
        queue = store.queue("sales")
        engine = sa.create_engine(address.catalog)
        _follow(tell)
        raw = rng.random() < 0.5
        for number in range(first, first + 100):
            connection = _driver(engine) if raw else engine.connect()
            try:
                if rng.random() < 0.4:
                    _run(connection, f"INSERT INTO sales VALUES ({number})")
                    queue.within(connection).load(pa.table({"number": [number]}))
                else:
                    firing = queue.within(connection).fire(FIRED)
                    for one in firing.messages.column("number").to_pylist():
                        _run(connection, f"INSERT INTO done VALUES ({one})")
                    if len(firing):
                        queue.within(connection).delete(firing)
                if rng.random() < 0.1:
                    connection.rollback()
                else:
                    tell(COMMITS)
                    connection.commit()
                    tell(BETWEEN)
            except Conflict:
                connection.rollback()
            finally:
                connection.close()
        time.sleep(2 * PATIENCE)


def handle(address: Address, first: int, shared: mmap.mmap) -> None:
    """Load in transactions of the caller, and settle in those of a pool, until killed."""

    def done(message: dict[str, Any], connection: sa.Connection) -> bool:
        row = {"number": message["number"]}
        connection.execute(sa.text("INSERT INTO done VALUES (:number)"), row)
        return True

    _handle(address, first, shared, done)


def handle_batches(address: Address, first: int, shared: mmap.mmap) -> None:
    """Do the same with a handler of batches, in which some messages fail twice."""

    @batch_handler
    def judged(batch: pa.RecordBatch, connection: sa.Connection) -> pa.Array:
        accepted = []
        for number, attempt in _pairs(batch):
            accepted.append(attempt > 1 or number % 3 > 0)
            text = "done VALUES (:number)" if accepted[-1] else "failed VALUES (:number, :attempt)"
            row = {"number": number, "attempt": attempt}
            connection.execute(sa.text(f"INSERT INTO {text}"), row)
        return pa.array(accepted)

    _handle(address, first, shared, judged)


def give(address: Address, first: int, shared: mmap.mmap) -> None:
    """Load in transactions of the caller, and return rows from a pool, until killed."""

    def rows(message: dict[str, Any]) -> Any:
        number = message["number"]
        # Some fail twice.
        good = message["_attempt"] > 1 or number % 3 > 0
        return good, [{"number": number}] * RETURNED

    _handle(address, first, shared, rows, output="results")


def give_batches(address: Address, first: int, shared: mmap.mmap) -> None:
    """Do the same with a handler of batches."""

    @batch_handler
    def rows(batch: pa.RecordBatch) -> Any:
        good = [attempt > 1 or number % 3 > 0 for number, attempt in _pairs(batch)]
        table = pa.Table.from_batches([batch.select(["_message_id", "number"])])
        return good, pa.concat_tables([table] * RETURNED)

    _handle(address, first, shared, rows, output="results")


def _pairs(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(*(batch.column(name).to_pylist() for name in NOTED), strict=True))


def _handle(
    address: Address,
    first: int,
    shared: mmap.mmap,
    handler: Callable[..., Any],
    output: str | None = None,
) -> None:
    tell = _telling(shared)
    with Store(address) as store:
        queue = store.queue("sales")
        # What the pool of an earlier child held.
        queue.sweep(older_than=0, dead_after=0)
        queue.shovel(force=True)
        engine = sa.create_engine(address.catalog)
        _follow(tell)
        with ConsumerPool(
            store,
            "sales",
            handler,
            transactional=output is None,
            output=output,
            concurrency=2,
            batch=5,
            tasks=[],
        ):
            for number in range(first, first + 100, LOADED):
                numbers = range(number, number + LOADED)
                with engine.connect() as connection:
                    for each in numbers:
                        _run(connection, f"INSERT INTO sales VALUES ({each})")
                    queue.within(connection).load(pa.table({"number": list(numbers)}))
                    connection.commit()
                # The pool has its turn.
                time.sleep(0.05)
            time.sleep(2 * PATIENCE)


def _driver(engine: sa.Engine) -> Any:
    connection = engine.raw_connection()
    driver = connection.driver_connection
    connection.detach()
    if isinstance(driver, psycopg.Connection):
        driver.autocommit = False
    return driver


def _run(connection: Any, statement: str) -> None:
    if isinstance(connection, sa.Connection):
        connection.exec_driver_sql(statement)
    else:
        connection.execute(statement)


def _telling(shared: mmap.mmap) -> Callable[[int], None]:
    def tell(doing: int) -> None:
        shared[0] = doing
        if doing == WITHIN:
            (count,) = struct.unpack("i", shared[4:])
            shared[4:] = struct.pack("i", count + 1)

    return tell


def _follow(tell: Callable[[int], None]) -> None:
    """Tell of each statement of SQLAlchemy in this process."""
    event.listen(sa.Engine, "before_cursor_execute", lambda *_: tell(WITHIN))
    event.listen(sa.Engine, "after_cursor_execute", lambda *_: tell(BETWEEN))
    event.listen(sa.Engine, "commit", lambda *_: tell(COMMITS))
    tell(BETWEEN)


#: What the processes do, by name.
WORKS: dict[str, Callable[[Address, int, mmap.mmap], None]] = {
    "caller": trade,
    "pool": handle,
    "pool of batches": handle_batches,
    "output": give,
    "output of batches": give_batches,
}
