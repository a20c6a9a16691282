"""A process whose clock jumps: its side tasks take nothing that is young."""

import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, text

from queue_core import Store
from queue_core.upkeep.leader import candidate
from queue_core.upkeep.tasks.runner import SideTasks
from tests.children import Child, Journal
from tests.factories import make_queue, orders

DAY = 24 * 3600
#: A schema with a clock that is ahead, in the place of the database's own one.
SKEWED = """
CREATE SCHEMA skewed;
CREATE TABLE skewed.skew (by interval);
INSERT INTO skewed.skew VALUES ('0');
CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    'SELECT pg_catalog.clock_timestamp() + by FROM skewed.skew';
"""


class Skew:
    """The clock of the databases that this process opens: SQLite's is the process's own."""

    def __init__(self) -> None:
        self._seconds = 0
        event.listen(Engine, "connect", self._connected)

    def jump(self, store: Store, days: int) -> None:
        self._seconds = days * DAY
        if store.catalog.file is None:
            store.catalog.write(
                lambda connection: connection.execute(
                    text("UPDATE skewed.skew SET by = :by * interval '1 day'"), {"by": days}
                )
            )

    def _connected(self, connection: Any, _: Any) -> None:
        if hasattr(connection, "create_function"):
            connection.create_function("julianday", 1, self._julian_day)
        else:
            connection.execute("SET search_path TO public, skewed, pg_catalog")
            connection.commit()

    def _julian_day(self, _: str) -> float:
        return (time.time() + self._seconds) / DAY + 2440587.5


def tasks_under_a_jump(address: Any, journal: Path) -> None:
    """Run all side tasks when they are due: before the clock jumps, and after."""
    skew = Skew()
    with Store(address, create=False) as store:
        leader = candidate(store.catalog)
        leader.start()
        tasks = SideTasks(store.catalog, store.storage, leader)
        for days in (0, 3, 0):
            skew.jump(store, days)
            wait_until_it_leads(leader)
            ran = tasks.run_due([store.queue("orders").info])
            Journal(journal).write(
                f"{days} days",
                ran={each.task: None if each.error is None else str(each.error) for each in ran},
                moved=sum(each.moved for each in ran),
            )
        leader.stop()


def wait_until_it_leads(leader: Any) -> None:
    end = time.monotonic() + 60
    while not leader.leads():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_whose_clock_jumps_takes_nothing_that_is_young(store, address, tmp_path):
    if store.catalog.file is None:
        store.catalog.write(lambda connection: connection.execute(text(SKEWED)))
    queue = make_queue(store, message_expiry=2 * DAY)
    queue.load(orders(900))
    queue.fire(100)
    journal = tmp_path / "journal"

    child = Child(tasks_under_a_jump, address, journal, log=tmp_path / "log")

    assert child.wait() == 0, child.output()
    before, ahead, after = Journal(journal).read()
    refused = {task for task, error in ahead["ran"].items() if error is not None}
    assert refused == {"sweep", "expire", "vacuum"}
    assert all("3 days" in ahead["ran"][task] for task in refused)
    assert [each["moved"] for each in (before, ahead, after)] == [0, 0, 0]
    assert queue.browse().num_rows == 900
    assert store.view("queues").column("in_flight").to_pylist() == [100]
