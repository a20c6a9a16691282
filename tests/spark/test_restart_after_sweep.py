"""A query that stopped for hours, while others swept and shovelled: nothing comes twice."""

import pytest

from queue_core import Store
from tests.dump import backdate
from tests.factories import main, orders
from tests.spark.rig import counts, finish

pytestmark = pytest.mark.nightly

ONCE = {"once": True}
HOURS = 7200.0


class Target:
    """Where a copy of the orders goes: the same store, another one, or a folder of Parquet."""

    def __init__(self, rig, kind):
        self.rig, self.kind = rig, kind
        self.path = str(rig.folder / ("store" if kind == "same" else kind))

    def run(self, trigger):
        writer = self.rig.source().writeStream.trigger(**trigger)
        writer = writer.option("checkpointLocation", str(self.rig.folder / "checkpoint"))
        if self.kind == "parquet":
            return finish(writer.format("parquet").start(self.path))
        return finish(writer.format("ignis").option("queue", "copy").start(self.path))

    def numbers(self):
        if self.kind == "parquet":
            rows = self.rig.spark.read.parquet(self.path).select("number").collect()
            return sorted(row.number for row in rows)
        with Store.open(self.path) as store:
            return main(store.queue("copy"))


def two_hours_pass(rig, queue):
    """A sweep and a shovel each minute; a few of them show what all of them do."""
    backdate(rig.store, HOURS)
    for _ in range(3):
        queue.sweep(dead_after=0.0)
        queue.shovel()


@pytest.mark.parametrize(
    ("kind", "logged"), [("same", True), ("same", False), ("other", False), ("parquet", True)]
)
def test_a_restart_after_two_hours_doubles_and_loses_nothing(rig, kind, logged):
    """Its last batch has arrived; Spark has logged that, or the driver died just before."""
    target = Target(rig, kind)
    queue = rig.orders(10)
    target.run(ONCE)
    if not logged:
        rig.forget_commit()
    two_hours_pass(rig, queue)
    queue.load(orders(5, 10))
    target.run({"availableNow": True})

    assert target.numbers() == list(range(15))
    assert counts(queue, "in_flight", "waiting", "swept") == [0, 0, 0]
    assert counts(queue, "waiting", magazine="sideline") == [0]
