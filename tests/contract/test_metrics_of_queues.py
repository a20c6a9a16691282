"""Metrics of what keeps messages: bounds, limits, consumers, jobs and kinds of failures."""

import time
from types import SimpleNamespace

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Settlement, limit
from queue_core.upkeep.tasks.sample import sample
from queue_core.values.names import of_process
from queue_core.watching import space
from queue_core.watching.prometheus import page
from tests.contract.test_metrics import scraped
from tests.dump import load_earlier
from tests.factories import drop, make_filled, make_queue, orders

pytestmark = pytest.mark.each_catalog


def told(store, name, **labels):
    """The value of one metric of the queue ``orders``; None if it has none."""
    place = {"queue": "orders"} | labels
    return scraped(page(store)).get((f"ignis_{name}", tuple(sorted(place.items()))))


def fail(queue, messages, kind="rejected"):
    """Load messages, and let them fail."""
    queue.load(orders(messages))
    ids = queue.fire(messages).ids
    rows = {"_message_id": ids, "outcome": ["sideline"] * messages, "kind": [kind] * messages}
    queue.settle(Settlement.of(pa.table(rows)))
    return ids


def test_messages_that_come_back_are_not_new(store):
    queue, other = make_queue(store, shards=2), make_queue(store, "other")
    sample(store.catalog)
    time.sleep(0.05)
    fail(queue, 10)

    ids = [row["_message_id"] for row in queue.peek(10, magazine="sideline").to_pylist()]
    assert queue.shovel(4, force=True) + queue.choose(ids=ids[-1:]).requeue() == 5
    queue.edit(queue.peek(1, magazine="sideline")["_message_id"][0].as_py(), {"amount": 1.0})
    assert queue.shovel(2, force=True, to="other") == 2

    assert told(store, "loaded_messages_total", magazine="main") == 10
    assert told(store, "returned_messages_total", magazine="sideline") == 6
    assert told(store, "shovelled_messages_total", magazine="sideline") == 8
    here = (("magazine", "main"), ("queue", "other"))
    assert scraped(page(store))["ignis_loaded_messages_total", here] == 2
    sample(store.catalog)
    rows = store.view("samples", "orders").to_pylist()
    row = [each for each in rows if each["seconds"] == 10][-1]
    assert row["loaded_per_s"] / row["returned_per_s"] == pytest.approx(10 / 6)
    assert other.metadata()["returned"].to_pylist() == [0, 0]
    assert store.admin.fsck().num_rows == 0


def test_a_message_waits_since_it_came_back_and_is_as_old_as_before(store):
    queue = make_queue(store)
    fail(queue, 1)
    load_earlier(store, 30.0)
    queue.shovel(force=True)

    age, wait = (told(store, f"{name}_seconds") for name in ("oldest_message_age", "longest_wait"))
    assert age > 30.0 > wait + 0.1
    (row,) = store.view("queues").to_pylist()
    assert row["oldest_age"] >= age
    assert 0 <= wait <= row["longest_wait"] < row["oldest_age"] - 0.3
    queue.delete(queue.fire().ids)
    assert told(store, "longest_wait_seconds") is None


def test_failures_count_by_kind_whoever_moves_the_messages(store):
    queue, other = make_queue(store, sweep_after=0.2, max_deliveries=1), make_queue(store, "other")
    fail(queue, 3)
    ids = fail(queue, 4, "timeout")
    fail(other, 1, "timeout")
    queue.load(orders(2))
    queue.choose(ids=queue.peek(1)["_message_id"].to_pylist()).sideline()
    queue.fire(1)
    time.sleep(0.3)
    queue.sweep(0.0)

    def kinds():
        return {
            labels["kind"]: value
            for (name, pairs), value in scraped(page(store)).items()
            if name == "ignis_failures_total" and (labels := dict(pairs))["queue"] == "orders"
        }

    seen = store.view("failures", "orders").to_pandas()["kind"].value_counts().to_dict()
    assert kinds() == seen
    assert {"rejected": 3, "timeout": 4}.items() <= seen.items()
    assert len(seen) == 4
    # What is forgotten has still happened.
    queue.delete(ids)
    assert kinds() == seen
    drop(other)
    assert "other" not in "".join(line for line in page(store).splitlines() if "failures" in line)


def test_a_bounded_queue_tells_how_full_it_is(store):
    queue = make_filled(store, 4, max_size=10)
    assert told(store, "queue_fill_ratio") == 0.4
    queue.fire(2)
    # Messages in flight take room, unless firing makes it.
    assert told(store, "queue_fill_ratio") == 0.4
    queue.admin.change_settings(room="on_fire")
    assert told(store, "queue_fill_ratio") == 0.2
    assert told(store, "queue_max_messages") == 10
    size = told(store, "queue_bytes", magazine="main")
    assert size == store.view("queues")["bytes"][0].as_py() > 0
    queue.admin.change_settings(room="on_delete", max_bytes=2 * int(size))
    assert told(store, "queue_fill_ratio") == 0.5
    queue.admin.change_settings(overflow="ring")
    assert told(store, "queue_fill_ratio") is None
    assert told(store, "queue_bytes", magazine="sideline") is None


def test_a_limit_tells_how_many_messages_it_allows(store):
    text = limit(in_flight=5, per_second=0.01, window=1000)
    queue = make_queue(store, limits=text)
    assert told(store, "limit_available_messages", limit=str(text)) == 5
    queue.load(orders(20))
    queue.fire(3)
    assert told(store, "limit_available_messages", limit=str(text)) == 2
    queue.delete(queue.fire(2).ids)
    assert told(store, "limit_available_messages", limit=str(text)) == 2
    queue.delete(queue.fire(2).ids)
    queue.delete(queue.fire(1).ids)
    # All but two of the ten that one window allows were fired.
    assert told(store, "limit_available_messages", limit=str(text)) == 2


def test_the_disks_of_catalog_and_storage_are_told(store):
    values = scraped(page(store))
    for place, is_here in (("catalog", store.catalog.file is not None), ("storage", True)):
        here = (("place", place),)
        assert (("ignis_disk_free_bytes", here) in values) == is_here
        if is_here:
            free, size = (values[f"ignis_disk_{name}_bytes", here] for name in ("free", "size"))
            assert 0 < free < size
    gone = SimpleNamespace(file=None, folder=store.storage.folder + "/no-such-folder")
    assert space.read(gone, gone) == ()
    (build,) = [dict(labels) for name, labels in values if name == "ignis_build_info"]
    assert build == {"version": "0.1.0", "database": store.catalog.engine.dialect.name}


def test_consumers_and_jobs_are_counted(store):
    queue = make_queue(store)
    make_queue(store, "other")
    assert told(store, "consumers") == 0
    both = ConsumerPool(store, ["orders", "other"], lambda _: True)
    with both, ConsumerPool(store, "orders", lambda _: True):
        assert told(store, "consumers") == 2
    assert told(store, "consumers") == 0
    queue.load(orders(2))
    queue.fire(1, consumer=store.consumer(of_process(), beats=True))
    assert told(store, "consumers") == 1

    fail(queue, 3)
    job = queue.start_shovel(force=True)
    assert told(store, "jobs", state="waiting") == 1
    store.admin.cancel(job)
    assert told(store, "jobs", state="waiting") is None
    assert told(store, "jobs", state="cancelled") == 1
