"""One load into several queues: all of them get their messages, or none does."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.errors import BadOption, NoSuchQueue, PublicationRefused, QueueFull, SchemaMismatch
from queue_core.segments import stager
from queue_core.support import faults
from queue_core.values.model import Batch
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting import admission
from queue_core.waiting.publish import Routed, RoutedLoad
from queue_core.waiting.smart.load import SmartLoad
from tests.books import leftover_files
from tests.dump import dump
from tests.factories import main, make_queue, make_staged, orders
from tests.waiting import PATIENCE, Caller, until, waits

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def two(store):
    return make_queue(store, "a", shards=2), make_queue(store, "b")


def test_each_queue_gets_its_rows_and_the_ids_are_theirs(store, two):
    ids = store.load({"b": orders(2, 5), "a": [{"number": 1}]})

    assert {name: len(found) for name, found in ids.items()} == {"b": 2, "a": 1}
    a, b = two
    assert (main(a), main(b)) == ([1], [5, 6])
    assert b.choose(ids["b"][:1]).rows().column("number").to_pylist() == [5]
    assert store.load({"a": [], "b": []})["a"].to_pylist() == []


def test_queues_that_are_given_one_iterator_all_get_its_rows(store, two):
    rows = iter([{"number": number} for number in range(3)])

    ids = store.load(dict.fromkeys(("a", "b"), rows))

    assert [len(found) for found in ids.values()] == [3, 3]
    assert [main(queue) for queue in two] == [[0, 1, 2]] * 2


def test_one_transaction_that_fails_changes_no_queue(store, two, monkeypatch):
    before = dump(store)

    def fail(point):
        if point == "load.before_commit":
            raise OSError("the process ends")

    monkeypatch.setattr(faults, "point", fail)
    with pytest.raises(OSError, match="the process ends"):
        store.load({"a": orders(3), "b": orders(3)})
    assert dump(store) == before


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        ({"a": [{"number": 1}], "nope": [{"number": 1}]}, NoSuchQueue, "nope"),
        ({"a": [{"number": 1}], "no": [], "none": []}, NoSuchQueue, "no queues 'no', 'none'"),
        ({"a": [{"number": 1}], "b": [{"other": 1}]}, SchemaMismatch, "'b'"),
        ({"a": [{"number": 1}], "b_SIDELINE": [{"number": 1}]}, BadOption, "sideline"),
        ({"a": [{"number": 1}], "meeting": [{"number": 1}]}, BadOption, "max_size=0"),
    ],
)
def test_bad_rows_for_one_queue_change_none(store, two, rows, error, text):
    make_queue(store, "meeting", max_size=0)
    before = dump(store)
    with pytest.raises(error, match=text):
        store.load(rows)
    assert dump(store) == before


def test_rows_without_a_key_leave_no_file_of_the_other_queue(store, two, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    make_queue(store, "keyed", key="customer")
    with pytest.raises(SchemaMismatch, match="key column 'customer' is null in 1 rows"):
        store.load({"a": orders(1), "keyed": [{"number": 1}]})
    assert leftover_files(store) == set()


def test_a_full_queue_keeps_the_load_waiting_and_the_others_empty(store, two):
    a, b = two
    b.admin.change_settings(max_size=2)
    b.load(orders(2))
    with pytest.raises(QueueFull, match="'b'"):
        store.load({"a": orders(1), "b": orders(1)}, timeout=0)
    loader = Caller(lambda: store.load({"a": orders(1), "b": orders(1, 9)}))
    time.sleep(0.3)
    assert main(a) == []
    b.delete(b.fire(1))
    loader.done()
    assert (main(a), main(b)) == ([0], [1, 9])


def test_a_load_whose_files_are_gone_when_there_is_room_writes_them_again(store, two, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    a, b = two
    b.admin.change_settings(max_size=1)
    b.load(orders(1))
    loader = Caller(lambda: store.load({"a": orders(1), "b": orders(1, 9)}))
    waits(store, 1)
    # As if it had waited for longer than vacuum leaves files alone.
    assert len(store.admin.vacuum(grace=0)) == 2
    b.delete(b.fire(1))
    loader.done()
    assert (main(a), main(b)) == ([0], [9])


def test_a_load_whose_files_are_gone_keeps_its_place_in_line(store, two, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    b = two[1]
    b.admin.change_settings(max_size=1)
    b.load(orders(1))
    loader = Caller(lambda: store.load({"a": orders(1), "b": orders(1, 9)}))
    waits(store, 1)
    other = Caller(lambda: b.load(orders(1, 5)))
    waits(store, 2)
    assert len(store.admin.vacuum(grace=0)) == 3
    for number in (9, 5):
        b.delete(b.fire(1))
        until(lambda number=number: main(b) == [number])
    loader.done()
    other.done()


def test_a_load_that_is_refused_again_and_again_ends(store, two, monkeypatch):
    refused = []

    def refuse(*given):
        refused.append(given)
        raise PublicationRefused("its file is gone")

    monkeypatch.setattr("queue_core.verbs.load.claim", refuse)
    with pytest.raises(PublicationRefused):
        store.load({"a": orders(1), "b": orders(1)}, timeout=0)
    assert len(refused) == 2


def test_loads_that_need_each_others_queues_do_not_wait_for_ever(store, two):
    """Each waits in the line of one full queue at a time."""
    for queue in two:
        queue.admin.change_settings(max_size=4)
        queue.load(orders(4))
    loads = [
        Caller(lambda: store.load({"a": orders(2, 10), "b": orders(2, 10)})),
        Caller(lambda: store.load({"b": orders(2, 20), "a": orders(2, 20)})),
    ]
    end = time.monotonic() + 90
    while any(each.is_alive() for each in loads) and time.monotonic() < end:
        for queue in two:
            queue.delete(queue.fire(1))
        time.sleep(0.05)
    for each in loads:
        each.done()


def test_policy_and_dedup_decide_within_the_transaction(store, two):
    store.queue("b").admin.change_settings(dedup=["number"])
    latest = make_queue(store, "latest", key="customer", policy="latest")
    rows = [{"number": 1, "customer": "ann"}, {"number": 2, "customer": "ann"}]
    ids = store.load({"a": rows, "b": rows, "latest": rows})
    again = store.load({"a": rows, "b": rows, "latest": rows})

    assert ids["latest"].null_count == 1
    assert again["b"].null_count == 2
    assert (main(two[0]), main(two[1]), main(latest)) == ([1, 1, 2, 2], [1, 2], [2])
    assert store.admin.fsck().num_rows == 0


def test_what_is_decided_waits_for_room_before_it_is_decided_again(store, monkeypatch):
    """It was decided at each look, with its shards locked."""
    counts = Counter()

    def counted(owner, name):
        real = getattr(owner, name)

        def call(*given, **how):
            counts[name] += 1
            return real(*given, **how)

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(admission, "EXPIRE_SECONDS", PATIENCE)
    queue = make_queue(store, max_size=1, dedup=["number"])
    queue.load(orders(1))
    counted(SmartLoad, "load_within")
    counted(admission, "read_usage")
    other = make_queue(store, "other")
    loader = Caller(lambda: store.load({"orders": orders(1, 9), "other": orders(1)}))
    until(lambda: counts["read_usage"] > 2, "it does not look")
    # Twice before it waits.
    assert counts["load_within"] == 2
    queue.delete(queue.fire(1))
    loader.done()
    assert (main(queue), main(other)) == ([9], [0])


def test_settings_and_columns_that_change_meanwhile(store, two):
    """Another process has given a queue a bound, and another one a column."""
    with Store(store.address) as elsewhere:
        elsewhere.queue("a").admin.add_columns(pa.schema([("note", pa.string())]))
        elsewhere.queue("b").admin.change_settings(dedup=["number"])
    store.load({"a": orders(2), "b": [{"number": 1}, {"number": 1}]})
    assert (main(two[0]), main(two[1])) == ([0, 1], [1])


def batch_of(number, rows=3):
    return Batch("query", number, rows, digest=number + 7)


def test_a_batch_is_loaded_once_even_into_other_queues(store, two):
    other = make_queue(store, "other")

    def load(queues, batch):
        loads = [Routed(queue.info, make_staged(queue, orders(3))) for queue in queues]
        how = (store.catalog, store.storage, loads, OnFull(), batch)
        return RoutedLoad(*how).run() is not None

    assert load(two, batch_of(0, 6))
    assert not load(two, batch_of(0, 6))
    assert not load([other], batch_of(0, 6))
    assert load([other, two[0]], batch_of(1, 6))
    assert [len(main(queue)) for queue in (*two, other)] == [6, 3, 3]
    assert store.admin.fsck().num_rows == 0


def test_threads_load_and_fire_in_both_orders(store, two):
    """No deadlock, and nothing is lost."""

    def loads(names, first):
        for number in range(10):
            store.load({name: orders(2, first + 2 * number) for name in names})
        return 0

    def fires(queue):
        return sum(queue.delete(queue.fire(3)) for _ in range(15))

    with ThreadPoolExecutor(4) as threads:
        loading = [threads.submit(loads, *each) for each in ((["a", "b"], 0), (["b", "a"], 1000))]
        firing = [threads.submit(fires, queue) for queue in two]
        assert [each.result(120) for each in loading] == [0, 0]
        deleted = [each.result(120) for each in firing]
    assert [len(main(queue)) + gone for queue, gone in zip(two, deleted, strict=True)] == [40, 40]
