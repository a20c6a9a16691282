"""
Campaigns of time limits: handlers that are late at random moments, and what becomes of the others.

    python -m tests.processes.time_limits loads --minutes 60 --catalog postgresql
    python -m tests.processes.time_limits transactions --timeouts 500 --stops 50

``loads``: pools whose handlers load, fire, settle and wait until their time is up, beside threads
and a pool that load and are never late. ``transactions``: calls with a transaction that are timed
out, and pools that stop, at random moments and within statements. The last line is the verdict as
JSON. Ends with 1 if a promise was broken, and with the traces of all threads if it crashed or hung.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from queue_core import ConsumerPool, Queue, Retry, Store
from tests import servers
from tests.books import audit
from tests.contract.callers import INSERT, caller_of
from tests.factories import make_queue, orders

#: Seconds without any progress after which a campaign hangs, on a busy machine too.
PATIENCE = 180.0
#: Seconds that a call may take.
LIMIT = 0.15
#: Of the numbers that handlers which are late load; those of the others are below.
LATE = 1 << 40
FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Hung(Exception):
    """Nothing happens any more."""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something; show what all threads do if it does not come."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            faulthandler.dump_traceback(all_threads=True)
            raise Hung(what)
        time.sleep(0.01)


class Ledger:
    """What threads were told about their loads, and what was found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.acknowledged: set[int] = set()
        #: Those whose load has raised the limit: they may be there or not, but not twice.
        self.in_doubt: set[int] = set()
        self.found: Counter[int] = Counter()

    def number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def load(self, queue: Queue, first: int = 0) -> None:
        """Load one message as a thread that is never late."""
        number = first + self.number()
        queue.load(orders(1, number))
        self.acknowledged.add(number)

    def failed(self, where: str, error: BaseException) -> None:
        with self._lock:
            self.counts["foreign errors"] += 1
            self.errors.append(f"{where}: {error!r}"[:300])


class Loads:
    """The campaign of loads."""

    def __init__(self, store: Store, seed: int) -> None:
        self._chance = random.Random(seed)
        self._ledger = Ledger()
        self._ended = threading.Event()
        self._store = store
        self._inputs = [make_queue(store, name, shards=2) for name in ("orders", "refunds")]
        self._outputs = [make_queue(store, name, shards=2) for name in ("letters", "bills")]
        self._lent = make_queue(store, "lent")
        self._empty = make_queue(store, "empty")
        self._lent.load(orders(200))
        #: When each of the threads that are never late has done something.
        self._alive: dict[str, float] = {}

    def run(self, seconds: float) -> tuple[dict[str, Any], list[str]]:
        """Run for so long; return the figures, and what is wrong."""
        ledger, end = self._ledger, time.monotonic() + seconds
        threads = [
            *(self._thread(f"loader {n}", self._load) for n in range(4)),
            self._thread("feeder", self._feed),
            self._thread("reader", self._read),
        ]
        # As many retries would only repeat what was late.
        how: dict[str, Any] = {"retry": Retry(attempts=1), "handler_timeout": LIMIT}
        pools = [
            ConsumerPool(self._store, "orders", self._late, concurrency=4, batch=5, **how),
            ConsumerPool(self._store, ["orders", "refunds"], self._late, concurrency=3, **how),
            ConsumerPool(self._store, "refunds", self._prompt, concurrency=2),
        ]
        for pool in pools:
            pool.start()
        wrong: list[str] = []
        try:
            while time.monotonic() < end and not wrong:
                # The main thread loads, too.
                self._try("main thread", lambda: ledger.load(self._chance.choice(self._outputs)))
                time.sleep(0.05)
                wrong = self._quiet()
            self._ended.set()
            for thread in threads:
                until(lambda thread=thread: not thread.is_alive(), thread.name)
            for pool in pools:
                until(lambda pool=pool: pool.drain(1), "a worker has died with its messages")
                ledger.counts["timed out"] += pool.counts.get("sidelined", 0)
                pool.stop()
                if pool.error is not None:
                    wrong.append(f"a pool has ended: {pool.error!r}")
            until(lambda: not _late_threads(), "late calls that do not end")
        except Hung as hung:
            ledger.counts["hangs"] += 1
            return self._figures(), [f"hung: {hung}", *wrong]
        self._collect()
        return self._figures(), wrong + self._verdict()

    def _figures(self) -> dict[str, Any]:
        ledger = self._ledger
        return {
            "loads acknowledged": len(ledger.acknowledged),
            "loads in doubt": len(ledger.in_doubt - ledger.acknowledged),
            "found": len(ledger.found),
            "calls timed out": ledger.counts["timed out"],
            "foreign errors": ledger.counts["foreign errors"],
            "hangs": ledger.counts["hangs"],
            "threads left": len(_late_threads()),
        }

    def _verdict(self) -> list[str]:
        ledger = self._ledger
        found = set(ledger.found)
        wrong = [*ledger.errors[:20]]
        for text, numbers in (
            ("acknowledged and lost", ledger.acknowledged - found),
            ("there twice", {n for n, count in ledger.found.items() if count > 1}),
            ("never loaded", found - ledger.acknowledged - ledger.in_doubt),
        ):
            if numbers:
                wrong.append(f"{len(numbers)} {text}: {sorted(numbers)[:10]}")
        try:
            audit(self._store)
        except AssertionError as error:
            wrong.append(f"the books are wrong: {error}")
        if not ledger.counts["timed out"]:
            wrong.append("no call was late: give the campaign more time")
        return wrong

    def _quiet(self) -> list[str]:
        """Return those who have done nothing for long."""
        now = time.monotonic()
        quiet = [name for name, at in list(self._alive.items()) if now - at > PATIENCE]
        if quiet:
            faulthandler.dump_traceback(all_threads=True)
            self._ledger.counts["hangs"] += len(quiet)
        return [f"hung: {name}" for name in quiet]

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            while not self._ended.is_set():
                self._try(name, work)

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _try(self, name: str, work: Callable[[], None]) -> None:
        self._alive[name] = time.monotonic()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - none may come
            self._ledger.failed(name, error)
            time.sleep(0.1)

    def _load(self) -> None:
        self._ledger.load(random.choice(self._outputs))
        time.sleep(random.uniform(0, 0.01))

    def _feed(self) -> None:
        for queue in self._inputs:
            if sum(queue.metadata()["waiting"].to_pylist()) < 50:
                queue.load(orders(20))
            failed = queue.choose("all", magazine="sideline")
            if failed.count():
                failed.delete()
        if sum(self._lent.metadata()["waiting"].to_pylist()) < 50:
            # A handler whose time was up as it got them has forgotten them.
            self._lent.load(orders(100))
        time.sleep(0.2)

    def _read(self) -> None:
        self._collect()
        time.sleep(0.5)

    def _collect(self) -> None:
        for queue in self._outputs:
            while len(firing := queue.fire(10_000)):
                self._ledger.found.update(firing.messages["number"].to_pylist())
                queue.delete(firing)

    def _prompt(self, message: dict[str, Any]) -> bool:
        self._try("prompt pool", lambda: self._ledger.load(random.choice(self._outputs)))
        return True

    def _late(self, message: dict[str, Any]) -> bool:
        """Do something until the time is up, or be quick."""
        match random.randrange(8):
            case 0 | 1 | 2:
                return True
            case 3 | 4 | 5:
                # Within loads, at any moment of them.
                while True:
                    self._load_late(random.choice(self._outputs))
            case 6:
                while True:
                    firing = self._lent.fire(random.randrange(1, 5))
                    try:
                        time.sleep(random.uniform(0, 0.05))
                    finally:
                        self._lent.reload(firing)
            case _:
                self._empty.fire(timeout=None)
        return True

    def _load_late(self, queue: Queue) -> None:
        number = LATE + self._ledger.number()
        self._ledger.in_doubt.add(number)
        queue.load(orders(1, number))
        self._ledger.acknowledged.add(number)


def _late_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("worker ")]


class Sales:
    """The campaign of transactions: each message becomes one row, however often it is late."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._caller = caller_of(store)
        self._queue = make_queue(store, shards=2, retry=Retry(attempts=1))
        self._loaded = 0
        self._counts: Counter[str] = Counter({"locks left": 0})
        random.seed(seed)

    def run(self, timeouts: int, stops: int) -> tuple[dict[str, Any], list[str]]:
        """Have so many calls timed out, and so many pools stopped; return figures and faults."""
        try:
            while self._counts["calls timed out"] < timeouts:
                self._load()
                pool = self._pool(self._sell, LIMIT).start()
                pool.drain(4)
                pool.stop(timeout=1)
                self._note(pool)
            for _ in range(stops):
                self._load()
                pool = self._pool(self._sell, 10.0).start()
                time.sleep(random.uniform(0.05, 0.3))
                pool.stop(timeout=0.05)
                self._counts["stops"] += 1
                self._note(pool)
            self._queue.shovel(force=True)
            with self._pool(
                lambda message, connection: self._insert(message, connection), 10
            ) as last:
                until(lambda: last.drain(1), "messages that nobody handles")
        except Hung as hung:
            return dict(self._counts), [f"hung: {hung}"]
        wrong = self._verdict()
        return dict(self._counts), wrong

    def _load(self) -> None:
        self._queue.load(orders(40, self._loaded))
        self._loaded += 40

    def _pool(self, handler: Callable[..., bool], limit: float) -> ConsumerPool:
        how: dict[str, Any] = {"concurrency": 4, "batch": 5, "transactional": True}
        return ConsumerPool(self._store, "orders", handler, handler_timeout=limit, **how)

    def _note(self, pool: ConsumerPool) -> None:
        self._counts["calls timed out"] += pool.counts.get("sidelined", 0)
        self._counts["sold"] += pool.counts.get("deleted", 0)
        # Nobody holds a lock, though late calls may go on.
        with self._caller.engine.connect() as connection:
            try:
                begin = "BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "SELECT 1"
                connection.exec_driver_sql(begin)
                connection.rollback()
            except sa.exc.DBAPIError:
                self._counts["locks left"] += 1
        # Messages of calls that the stop has cut off come back at once, those of late ones here.
        self._queue.shovel(force=True)

    def _insert(self, message: dict[str, Any], connection: sa.Connection) -> bool:
        connection.execute(INSERT, {"number": message["number"]})
        return True

    def _sell(self, message: dict[str, Any], connection: sa.Connection) -> bool:
        """Insert the row, and be quick, or late in Python, in a statement or in half read rows."""
        self._insert(message, connection)
        on_sqlite = connection.dialect.name == "sqlite"
        match random.randrange(7):
            case 0:
                end = time.monotonic() + random.uniform(0, 2 * LIMIT)
                while time.monotonic() < end:
                    connection.execute(sa.text("SELECT count(*) FROM sales")).fetchall()
            case 4:
                # Where a pool ends it, it may be between two steps of a statement.
                brief = sa.text(FOR_EVER.replace("FROM n)", "FROM n LIMIT 19999)"))
                end = time.monotonic() + 5 * LIMIT
                while time.monotonic() < end:
                    connection.execute(brief).fetchall()
            case 1:
                connection.execute(sa.text(FOR_EVER if on_sqlite else "SELECT pg_sleep(3600)"))
            case 2:
                numbers = sa.text(
                    FOR_EVER.replace("count(*)", "i").replace("FROM n)", "FROM n LIMIT 999)")
                )
                for _ in connection.execution_options(yield_per=1).execute(numbers):
                    time.sleep(random.uniform(0, LIMIT))
            case 3:
                time.sleep(random.uniform(0, 3 * LIMIT))
            case _:
                pass
        return True

    def _verdict(self) -> list[str]:
        wrong = []
        if self._counts["locks left"]:
            wrong.append(f"{self._counts['locks left']} locks left")
        sold = self._caller.sold()
        if sold != list(range(self._loaded)):
            left = self._store.view("queues").select(["waiting", "in_flight"]).to_pylist()
            wrong.append(f"{len(sold)} rows of {self._loaded} messages, which are {left}")
        self._counts["rows"] = len(sold)
        try:
            audit(self._store)
        except AssertionError as error:
            wrong.append(f"the books are wrong: {error}")
        return wrong


@contextmanager
def opened(catalog: str) -> Iterator[Store]:
    """A new store, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ignis-limits-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        where = {"path": str(folder / "store")}
        if catalog == "postgresql":
            server = stack.enter_context(servers.postgres())
            where = {"catalog": stack.enter_context(server.database()), "storage": where["path"]}
        yield stack.enter_context(Store.open(**where))


def main() -> int:
    """Run the campaign of the command line; return 0 if every promise was kept."""
    faulthandler.enable()
    # Each late call says so.
    logging.getLogger("queue_core").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[1])
    parser.add_argument("campaign", nargs="?", choices=("loads", "transactions"), default="loads")
    parser.add_argument("--minutes", type=float, default=60.0, help="of loads")
    parser.add_argument("--timeouts", type=int, default=500, help="of transactions")
    parser.add_argument("--stops", type=int, default=50, help="of pools with transactions")
    parser.add_argument("--catalog", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    asked = parser.parse_args()
    print(f"{asked.campaign}, {asked.catalog}, seed {asked.seed}", flush=True)
    began = time.monotonic()
    with opened(asked.catalog) as store:
        if asked.campaign == "loads":
            figures, wrong = Loads(store, asked.seed).run(asked.minutes * 60)
        else:
            figures, wrong = Sales(store, asked.seed).run(asked.timeouts, asked.stops)
    for text in wrong:
        print(text)
    figures["seconds"] = round(time.monotonic() - began)
    verdict = "a promise was broken" if wrong else "every promise was kept"
    print(json.dumps({"verdict": verdict, **figures}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
