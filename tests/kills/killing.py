"""
Kill processes at random while they work in transactions of their own, and compare both sides.

A caller has two tables beside the catalog's: ``sales`` has a row for each message that it loads,
and ``done`` one for each message that it has settled. Each row is written in the transaction of its
message. So at any time each sale is either a message or done, and never both.
"""

from __future__ import annotations

import mmap
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import event

from queue_core import Conflict, ConsumerPool, Queue, Store
from queue_core.address import Address
from tests.books import audit
from tests.children import Child

#: What a child does when it is killed, by the byte that it writes.
DOING = ("begins", "between two statements", "within a statement", "within a commit")
SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False)])
#: A child is killed at most this many seconds after it has begun to work.
LONGEST = 0.15
PATIENCE = 60.0
#: Messages that one transaction fires.
FIRED = 3


@dataclass
class Kills:
    """Kills of one kind, and what the children did when they were killed."""

    doing: Counter[str] = field(default_factory=Counter)
    sold: int = 0
    done: int = 0


def prepare(store: Store) -> Queue:
    """Make the queue and the caller's tables."""
    with store.catalog.engine.connect() as connection:
        for table in ("sales", "done"):
            statement = f"CREATE TABLE {table} (number INTEGER NOT NULL UNIQUE)"
            connection.exec_driver_sql(statement)
        connection.commit()
    return store.create_queue("sales", SCHEMA, shards=4)


def kill(store: Store, work: Callable[..., None], folder: Path, kills: int, seed: int) -> Kills:
    """Kill that many children that *work*, and check after each; raises `AssertionError`."""
    rng = random.Random(seed)
    found = Kills()
    for number in range(kills):
        byte = folder / f"doing-{seed}-{number}"
        byte.write_bytes(b"\0")
        log = folder / f"child-{seed}-{number}.log"
        first = (seed % 100 * 10_000 + number) * 1000
        child = Child(work, store.address, first, byte, log=log)
        end = time.monotonic() + PATIENCE
        while byte.read_bytes() == b"\0":
            assert child.running, child.output()
            assert time.monotonic() < end, child.output()
            time.sleep(0.001)
        time.sleep(rng.uniform(0, LONGEST))
        assert child.running, child.output()
        child.kill()
        child.wait_for_rollback(store)
        found.doing[DOING[byte.read_bytes()[0]]] += 1
        found.sold, found.done = check(store)
        byte.unlink()
        log.unlink()
    audit(store)
    return found


def check(store: Store) -> tuple[int, int]:
    """Compare the rows with the messages; return how many sales there are, and are done."""
    queue = store.queue("sales")
    with store.catalog.engine.connect() as connection:
        sold, done = (
            set(connection.exec_driver_sql(f"SELECT number FROM {table}").scalars())
            for table in ("sales", "done")
        )
    waiting = queue.browse().column("number").to_pylist()
    waiting += queue.browse(magazine="sideline").column("number").to_pylist()
    assert len(waiting) == len(set(waiting)), "a message is there twice"
    assert not done & set(waiting), f"done, and still there: {sorted(done & set(waiting))}"
    lost = sold - done - set(waiting)
    assert not lost, f"sold, and neither there nor done: {sorted(lost)}"
    strange = (done | set(waiting)) - sold
    assert not strange, f"there, and never sold: {sorted(strange)}"
    return len(sold), len(done)


def trade(address: Address, first: int, byte: Path) -> None:
    """Load, fire and settle in transactions of the caller, until killed."""
    rng = random.Random(first)
    tell = _telling(byte)
    with Store(address) as store:
        queue = store.queue("sales")
        engine = sa.create_engine(address.catalog)
        with engine.connect() as connection:
            # The first calls of a process take much longer than others.
            queue.load(pa.table({"number": [first]}), connection=connection)
            queue.delete(queue.fire(connection=connection), connection=connection)
            connection.rollback()
        _follow(tell)
        raw = rng.random() < 0.5
        for number in range(first, first + 1000):
            connection = _driver(engine) if raw else engine.connect()
            try:
                if rng.random() < 0.4:
                    _run(connection, f"INSERT INTO sales VALUES ({number})")
                    queue.load(pa.table({"number": [number]}), connection=connection)
                else:
                    firing = queue.fire(FIRED, connection=connection)
                    for one in firing.messages.column("number").to_pylist():
                        _run(connection, f"INSERT INTO done VALUES ({one})")
                    if len(firing):
                        queue.delete(firing, connection=connection)
                if rng.random() < 0.1:
                    connection.rollback()
                else:
                    tell(3)
                    connection.commit()
                    tell(1)
            except Conflict:
                connection.rollback()
            finally:
                connection.close()
        time.sleep(PATIENCE)


def handle(address: Address, first: int, byte: Path) -> None:
    """Load in transactions of the caller, and settle in those of a pool, until killed."""
    tell = _telling(byte)
    with Store(address) as store:
        queue = store.queue("sales")
        # What the pool of an earlier child held.
        queue.sweep(older_than=0, dead_after=0)
        queue.shovel(force=True)
        engine = sa.create_engine(address.catalog)
        _follow(tell)

        def done(message: dict[str, Any], connection: sa.Connection) -> bool:
            row = {"number": message["number"]}
            connection.execute(sa.text("INSERT INTO done VALUES (:number)"), row)
            return True

        with ConsumerPool(
            store, "sales", done, transactional=True, concurrency=2, batch=5, tasks=[]
        ):
            for number in range(first, first + 1000):
                with engine.connect() as connection:
                    _run(connection, f"INSERT INTO sales VALUES ({number})")
                    queue.load(pa.table({"number": [number]}), connection=connection)
                    connection.commit()
            time.sleep(PATIENCE)


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


def _telling(path: Path) -> Callable[[int], None]:
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 1)

    def tell(doing: int) -> None:
        shared[0] = doing

    return tell


def _follow(tell: Callable[[int], None]) -> None:
    """Tell of each statement of SQLAlchemy in this process."""
    event.listen(sa.Engine, "before_cursor_execute", lambda *_: tell(2))
    event.listen(sa.Engine, "after_cursor_execute", lambda *_: tell(1))
    event.listen(sa.Engine, "commit", lambda *_: tell(3))
    tell(1)


#: What children do, by name.
WORKS: dict[str, Callable[[Address, int, Path], None]] = {
    "caller": trade,
    "pool": handle,
}
