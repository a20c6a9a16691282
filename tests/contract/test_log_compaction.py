"""The compaction of a log: small rows become one, and whoever reads it gets the same messages."""

import pytest
from sqlalchemy import func, select

from queue_core.catalog.slices import log_merging
from queue_core.catalog.tables import id_map, log_slices, segments
from queue_core.errors import DamagedSegment
from queue_core.support import faults
from tests.books import audit, leftover_files
from tests.dump import load_earlier, log_earlier, log_in_a_minute
from tests.factories import make_queue, numbers_of, orders
from tests.statements import counted

pytestmark = pytest.mark.each_catalog

#: Messages of a log, in loads of one.
FEW = 20


@pytest.fixture
def topic(store):
    return make_queue(store, log="7 days")


def logged(store, topic, count=FEW, first=0, *, each=1):
    """Load messages in small loads, in one minute, some minutes ago."""
    for number in range(first, first + count, each):
        topic.load(orders(each, number))
    log_in_a_minute(store)


def rows_of(store, name="orders"):
    here = log_slices.c.queue_id == store.queue(name).info.id
    query = select(log_slices).where(here).order_by(log_slices.c.shard, log_slices.c.first_offset)
    with store.catalog.read() as connection:
        return connection.execute(query).mappings().all()


def counts(store):
    return [(row["first_offset"], row["count"], row["compacted"]) for row in rows_of(store)]


def sound(store):
    assert store.admin.fsck(deep=True).to_pylist() == []
    return audit(store)


def test_small_rows_become_one_and_readers_get_the_same(store, topic):
    before, after = (store.subscribe(name, to="orders") for name in ("before", "after"))
    logged(store, topic)
    ids = before.fire("all").ids.to_pylist()
    old = rows_of(store)

    assert topic.admin.compact() == FEW
    [row] = rows_of(store)
    assert (row["first_offset"], row["count"], row["compacted"]) == (0, FEW, 1)
    assert row["bytes"] == sum(each["bytes"] for each in old)
    assert row["logged_at"] == old[-1]["logged_at"]
    assert row["loaded_at"] == min(each["loaded_at"] for each in old)
    assert topic.admin.compact() == 0
    sound(store)

    fired = after.fire("all")
    assert numbers_of(fired.messages) == list(range(FEW))
    assert fired.ids.to_pylist() == ids
    assert after.delete(fired) == before.delete(ids) == FEW
    assert sorted(numbers_of(topic.fire("all").messages)) == list(range(FEW))
    sound(store)
