"""
Calls with a transaction that are timed out, and pools that stop, at random moments.

    python -m tests.processes.time_limits --timeouts 500 --stops 50 --catalog postgresql

The moments are within statements too. The last line is the verdict as JSON. Ends with 1 if a
promise was broken, and with the traces of all threads if it crashed or hung. Handlers that are late
while they load are a role of the soak.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from queue_core import ConsumerPool, Retry, Store
from tests import servers
from tests.books import audit
from tests.contract.callers import INSERT, Seller
from tests.factories import make_queue, orders

#: Seconds after which a pool that is not done hangs, on a busy machine too.
PATIENCE = 180.0
#: Seconds that a call may take.
LIMIT = 0.15
FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Sales:
    """The campaign of transactions: each message becomes one row, however often it is late."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._seller = Seller(store)
        self._queue = make_queue(store, shards=2, retry=Retry(attempts=1))
        self._loaded = 0
        self._counts: Counter[str] = Counter({"locks left": 0})
        random.seed(seed)

    def run(self, timeouts: int, stops: int) -> tuple[dict[str, Any], list[str]]:
        """Have so many calls timed out, and so many pools stopped; return figures and faults."""
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
        with self._pool(lambda message, connection: self._insert(message, connection), 10) as last:
            if not last.drain(PATIENCE):
                faulthandler.dump_traceback(all_threads=True)
                return dict(self._counts), ["hung: messages that nobody handles"]
        wrong = self._verdict()
        return dict(self._counts), wrong

    def _load(self) -> None:
        self._queue.load(orders(20, self._loaded))
        self._loaded += 20

    def _pool(self, handler: Callable[..., bool], limit: float) -> ConsumerPool:
        how: dict[str, Any] = {"concurrency": 4, "batch": 5, "transactional": True}
        return ConsumerPool(self._store, "orders", handler, handler_timeout=limit, **how)

    def _note(self, pool: ConsumerPool) -> None:
        self._counts["calls timed out"] += pool.counts.get("sidelined", 0)
        self._counts["sold"] += pool.counts.get("deleted", 0)
        # Nobody holds a lock, though late calls may go on.
        with self._seller.engine.connect() as connection:
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
        sold = self._seller.sold()
        if sold != list(range(self._loaded)):
            left = self._store.view("queues").select(["waiting", "in_flight"]).to_pylist()
            wrong.append(f"{len(sold)} rows of {self._loaded} messages, which are {left}")
        self._counts["rows"] = len(sold)
        try:
            audit(self._store)
        except AssertionError as error:
            wrong.append(f"the books are wrong: {error}")
        return wrong


def main() -> int:
    """Run the campaign of the command line; return 0 if every promise was kept."""
    faulthandler.enable()
    # Each late call says so.
    logging.getLogger("queue_core").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[1])
    parser.add_argument("--timeouts", type=int, default=500)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--catalog", choices=servers.CATALOGS, default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    asked = parser.parse_args()
    print(f"{asked.catalog}, seed {asked.seed}", flush=True)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ignis-limits-", ignore_cleanup_errors=True) as folder,
        servers.address_in(folder, asked.catalog) as address,
        Store(address) as store,
    ):
        figures, wrong = Sales(store, asked.seed).run(asked.timeouts, asked.stops)
    for text in wrong:
        print(text)
    figures["seconds"] = round(time.monotonic() - began)
    verdict = "a promise was broken" if wrong else "every promise was kept"
    print(json.dumps({"verdict": verdict, **figures}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
