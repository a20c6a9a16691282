"""Write the golden store of this format: ``python -m tests.golden.make``.

Run once per format, when the first version that writes it is released; what is in the repository
is then never changed, since users have such stores.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from sqlalchemy import delete, update

from queue_core import Queue, Store
from queue_core.catalog.format import FORMAT
from queue_core.catalog.holders import consumers, waiters
from queue_core.catalog.tables import clocks, facts
from queue_core.segments import stager
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.sample import sample
from queue_core.values.views import VIEWS
from tests.arrow_types import KEPT
from tests.factories import (
    make_batch,
    make_queue,
    make_staged,
    orders,
    planned,
    publish_once,
    seen,
    sideline_traced,
)

HERE = Path(__file__).parent
#: The query of the store, which has died with two tickets: one that was planned, one that was not.
QUERY = "query-1"
MAGAZINES = ("main", "sideline")
#: Nothing in it ends, or it could not be read for ever.
FOR_EVER: dict[str, Any] = {"message_expiry": None}
#: Columns that are other ones at each look.
PASSING = {
    "queues": ["oldest_age", "longest_wait"],
    "jobs": ["moved_per_s", "seconds_left"],
    "subscriptions": ["behind_seconds"],
    "retained": ["bytes"],
}


def folder_of(version: int) -> Path:
    """The golden store of a format."""
    return HERE / f"format-{version}"


def described(store: Store) -> dict[str, Any]:
    """All that a user can see of a store, as JSON values."""
    names = store.queues()
    return {
        "views": {
            name: _rows(store.view(name).drop_columns(PASSING.get(name, []))) for name in VIEWS
        },
        "messages": {
            name: {where: _rows(store.queue(name).browse(magazine=where)) for where in MAGAZINES}
            for name in names
        },
        "schemas": {name: store.queue(name).schema.to_string() for name in names},
        "files": sorted(store.storage.list()),
    }


def fill(store: Store) -> None:
    """Use every verb, so that every table has rows of every kind."""
    queue = make_queue(
        store, shards=2, key="customer", attributes=["amount"], sweep_after=60.0, **FOR_EVER
    )
    _load(queue, 60, 0, in_file=True)
    queue.admin.change_settings(compression="zstd")
    _load(queue, 60, 60, in_file=True)
    _load(queue, 40, 120)
    queue.admin.add_columns(pa.schema([("note", pa.string())]))
    queue.load([{"number": 160, "customer": "customer-3", "note": "evolved"}])
    firing = queue.fire(60, consumer=store.consumer("till-1"))
    queue.delete(firing.ids.take(pa.array(range(0, 30, 3))))
    queue.sideline(firing.ids.take(pa.array(range(1, 30, 3))), reason="declined")
    queue.reload(firing.ids.take(pa.array(range(2, 30, 6))))
    queue.shovel(4)
    again = queue.fire(3, magazine="sideline", consumer=store.consumer("till-2"))
    queue.sideline(again.ids[:1], reason="declined again")

    query = store.catalog.write(
        lambda c: consumers.enlist(c, QUERY, beats=True, ack="onCommit", sweepable=False)
    )
    for _ in range(2):
        ticket = planned(store, queue, query, 10)
        if ticket.number == 1:
            seen(store, queue, ticket)

    sunk = make_queue(store, "sunk", **FOR_EVER)
    staged = make_staged(sunk, orders(5))
    publish_once(store.catalog, store.storage, sunk.info, staged, make_batch(staged, 7, "query-2"))

    columns = {
        name.replace(" ", "_"): pa.array(values * 3, kind)[:3]
        for name, (kind, values) in KEPT.items()
    }
    types = make_queue(store, "types", pa.table(columns).schema, **FOR_EVER)
    types.load(pa.table(columns))

    small = make_queue(store, "small", shards=1, **FOR_EVER)
    for number in range(80):
        small.load(orders(1, number))
    small.delete(small.fire(8))
    small.admin.compact()
    small.fire(2)
    small.sweep(older_than=0)

    traced = make_queue(store, "traced", shards=1, **FOR_EVER)
    traced.load(orders(2))
    sideline_traced(traced, traced.fire(2).ids)

    ring = make_queue(store, "ring", max_size=3, overflow="ring", **FOR_EVER)
    ring.load(orders(5))
    store.catalog.write(lambda connection: waiters.join(connection, ring.info.id, waiters.FIRE))

    logged = make_queue(store, "logged", log="1 TB", **FOR_EVER)
    reader = store.subscribe("reader", to="logged", **FOR_EVER)
    _load(logged, 60, 0, in_file=True)
    logged.load(orders(3, 60))
    logged.delete(logged.fire(40))
    reader.delete(reader.fire(10))
    reader.fire(10, selector="number > 50")

    brief = make_queue(store, "brief", message_expiry=1e-6)
    brief.load(orders(3))
    brief.admin.expire()
    brief.admin.deactivate()

    store.admin.breaker("orders").open()
    for _ in range(2):
        sample(store.catalog)

    leader = LeaseLeader(store.catalog)
    leader.start()
    SideTasks(store.catalog, store.storage, leader).run_due([queue.info])
    leader.stop()


def go_on(queue: Queue) -> None:
    """Use the verbs of consumers and of people once more."""
    firing = queue.fire(20)
    queue.delete(firing.ids[:5])
    queue.sideline(firing.ids[5:10], reason="later")
    queue.reload(firing)
    queue.shovel()
    queue.sweep(0)


def _load(queue: Queue, count: int, first: int, *, in_file: bool = False) -> None:
    with (
        mock.patch.object(stager, "INLINE_BYTES", 0 if in_file else 1 << 20),
        mock.patch.object(stager, "CHUNK_ROWS", 16),
    ):
        queue.load(orders(count, first))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return json.loads(json.dumps(table.to_pylist(), default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return str(value)


def main() -> None:
    folder = folder_of(FORMAT)
    shutil.rmtree(folder, ignore_errors=True)
    with Store.open(folder) as store:
        fill(store)
        expected = described(store)
        # On the machines that open it, nobody has watched the clock, and the folder is another.
        elsewhere = update(facts).where(facts.c.name == "storage").values(value="golden")
        store.catalog.write(lambda connection: connection.execute(delete(clocks)))
        store.catalog.write(lambda connection: connection.execute(elsewhere))
    with contextlib.closing(sqlite3.connect(folder / "catalog.db")) as catalog:
        # Nothing of what was replaced stays in the file.
        catalog.execute("VACUUM")
    # A store makes its reserve again when it is opened.
    (folder / "catalog.db-reserve").unlink(missing_ok=True)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    print(folder)


if __name__ == "__main__":
    main()
