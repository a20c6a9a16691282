"""Promises that hold for many queues, schemas, shards, threads and stores, with many of each."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, QueueTaken, Retry, Store, batch_handler
from queue_core.catalog.slices import rewritable
from queue_core.segments import stager
from queue_core.values.address import Address
from tests.books import audit
from tests.contract.callers import KINDS, Seller
from tests.contract.pools import Recorder
from tests.factories import ORDERS, aside, main, make_filled, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, until

#: Queues of one pool whose columns differ in their number, order and types.
SCHEMAS = {
    "plain": ORDERS,
    "more": pa.schema([*ORDERS, pa.field("extra", pa.string())]),
    "other": pa.schema([("extra", pa.int64()), *reversed(ORDERS)]),
}
EXTRAS = {"plain": lambda _: None, "more": lambda n: f"extra {n}", "other": lambda n: n * 2}


def rows_of(name, first, count):
    """Messages of a queue of `SCHEMAS`."""
    rows = orders(count, first).to_pylist()
    return [
        row | ({} if name == "plain" else {"extra": EXTRAS[name](row["number"])}) for row in rows
    ]


@pytest.mark.parametrize("how", ["rows", "batches", "browser"])
def test_a_pool_gets_all_columns_of_each_of_its_queues(store, how):
    queues = [make_queue(store, name, schema, shards=2) for name, schema in SCHEMAS.items()]
    for number in range(20):
        for queue in queues:
            queue.load(rows_of(queue.name, 10 * number, 3))
    recorder = Recorder()

    @batch_handler
    def handle_batch(batch):
        return [recorder(row) for row in batch.to_pylist()]

    handle = handle_batch if how == "batches" else recorder
    browse = how == "browser"
    with ConsumerPool(store, list(SCHEMAS), handle, concurrency=4, batch=7, browse=browse) as pool:
        until(lambda: len(recorder.messages) >= 180)
        assert pool.drain(PATIENCE)

    assert len(recorder.messages) == 180
    for row in recorder.messages:
        assert row.get("extra") == EXTRAS[row["_queue"]](row["number"]), row


def test_credit_is_one_for_all_queues_of_a_pool(store):
    queues = [make_filled(store, 60, name, shards=3) for name in ("red", "green", "blue")]
    recorder = Recorder()
    recorder.open.clear()
    names = [queue.name for queue in queues]
    with ConsumerPool(store, names, recorder, concurrency=6, batch=4, max_in_flight=7) as pool:
        until(lambda: in_flight(queues) == 7)
        recorder.wait()
        assert in_flight(queues) <= 7
        most = 0
        recorder.open.set()
        while not pool.drain(0.01):
            most = max(most, in_flight(queues))
    assert most <= 7
    assert len(recorder.messages) == 180


def in_flight(queues):
    """The messages in flight, in one state of the catalog."""
    rows = queues[0].store.view("queues").to_pylist()
    return sum(row["in_flight"] for row in rows)


def test_an_exclusive_pool_takes_all_of_its_queues_or_none(store, address):
    for name in ("red", "green", "blue"):
        make_queue(store, name)
    with Store(address) as other:
        with ConsumerPool(other, "green", Recorder(), name="first"):
            late = ConsumerPool(store, ["red", "blue", "green"], Recorder(), exclusive=True)
            with pytest.raises(QueueTaken, match="green"):
                late.start()
            # Those that it did not get are free.
            with ConsumerPool(other, ["red", "blue"], Recorder(), exclusive=True):
                pass
        with late, pytest.raises(QueueTaken):
            ConsumerPool(other, "blue", Recorder()).start()


def test_a_priority_counts_in_the_queues_of_its_pool_alone(store, address):
    queues = [make_queue(store, name, shards=2) for name in ("red", "green", "blue")]
    high, low = Recorder(), Recorder()
    high.open.clear()
    with (
        Store(address) as other,
        ConsumerPool(other, ["red", "green"], high, priority=5, concurrency=2, batch=5),
        ConsumerPool(store, ["blue", "green", "red"], low, priority=1, concurrency=2, batch=5),
    ):
        for queue in queues:
            queue.load(orders(20))
        # The higher one has its hands full, and still wants its queues.
        until(lambda: len(low.messages) == 20)
        assert {row["_queue"] for row in low.messages} == {"blue"}
        high.open.set()
        until(lambda: len(high.messages) == 40)
    assert len(low.messages) == 20


@pytest.mark.parametrize("in_batches", [False, True])
def test_transactional_calls_of_many_queues_load_many_queues(store, in_batches):
    """Some of the calls fail after they have loaded: nothing of that remains."""
    sources = [make_queue(store, name, shards=2) for name in ("red", "green")]
    targets = [make_queue(store, f"out-{number}", shards=2) for number in range(2)]
    for queue in sources:
        for number in range(10):
            queue.load(orders(3, 3 * number))

    def handler(row, connection):
        for target in targets:
            target.within(connection).load([{name: row[name] for name in ORDERS.names}])
        return row["number"] % 7 != 0

    @batch_handler
    def handle_batch(batch, connection):
        return [handler(row, connection) for row in batch.to_pylist()]

    handle = handle_batch if in_batches else handler
    how = {"concurrency": 3, "batch": 1 if in_batches else 4, "retry": Retry(attempts=1)}
    with ConsumerPool(store, ["red", "green"], handle, transactional=True, **how) as pool:
        assert pool.drain(PATIENCE)

    good = sorted([number for number in range(30) if number % 7] * 2)
    for target in targets:
        assert main(target) == good
    for queue in sources:
        assert aside(queue) == [0, 7, 14, 21, 28]
        assert queue.browse().num_rows == 0


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_of_a_caller_concerns_many_queues(store, kind, commits):
    sources = [make_queue(store, name, shards=3) for name in ("in-1", "in-2")]
    targets = [make_queue(store, f"out-{number}", shards=2, key="customer") for number in range(3)]
    for queue in sources:
        queue.load(orders(30))
    before = {queue.name: main(queue) for queue in sources + targets}
    with Seller(store, kind) as caller, caller.connected() as connection:
        for step in range(3):
            for source in sources:
                ours = source.within(connection)
                firing = ours.fire(5)
                for target in targets:
                    target.within(connection).load(firing.messages.select(ORDERS.names))
                outcome = (ours.delete, ours.sideline, ours.reload)[step]
                outcome(firing)
        (connection.commit if commits else connection.rollback)()

    after = {queue.name: main(queue) for queue in sources + targets}
    if not commits:
        assert after == before
        return
    for queue in sources:
        assert len(after[queue.name]) == 20
        assert queue.browse(magazine="sideline").num_rows == 5
        assert sorted(numbers_of(queue.fire("all").messages)) == after[queue.name]
    assert [len(after[queue.name]) for queue in targets] == [30] * 3


def test_many_schemas_shards_and_magazines_survive_compactions(store, address, monkeypatch):
    """Each message keeps its values, whichever columns there were when it was loaded."""
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 2)
    chance = random.Random(7)
    names = ("red", "green")
    queues = [make_queue(store, name, shards=2) for name in names]
    expected = {name: {} for name in names}
    number = 0
    for version in range(6):
        monkeypatch.setattr(stager, "INLINE_BYTES", (0, 1 << 20)[version % 2])
        for queue in queues:
            if version:
                kind = (pa.string(), pa.int64(), pa.list_(pa.int32()))[version % 3]
                queue.admin.add_columns(pa.schema([(f"c{version}", kind)]))
            for _ in range(8):
                rows = orders(2, number).to_pylist()
                for row in rows:
                    row |= {
                        f"c{each}": value(each, row["number"]) for each in range(1, version + 1)
                    }
                    expected[queue.name][row["number"]] = row
                queue.load(rows)
                number += 2
            firing = queue.fire(chance.randrange(1, 9))
            (queue.sideline, queue.reload)[version % 2](firing)
            queue.admin.compact()
    with Store(address) as again:
        for name in names:
            queue = again.queue(name)
            assert queue.admin.compact() >= 0
            seen = []
            for magazine in ("main", "sideline"):
                firing = queue.fire(
                    "all", magazine=magazine, selector="number % 2 = 0 OR c5 IS NULL"
                )
                seen += firing.messages.to_pylist()
                seen += queue.fire("all", magazine=magazine).messages.to_pylist()
            assert len(seen) == len(expected[name])
            for row in seen:
                wanted = expected[name][row["number"]]
                assert {c: row[c] for c in queue.schema.names} == {
                    c: wanted.get(c) for c in queue.schema.names
                }


def test_columns_that_many_add_at_once_keep_the_values_of_all(store, address):
    names = ("red", "green")
    for name in names:
        make_queue(store, name, shards=3)

    def grow(which):
        with Store(address) as own:
            for name in names:
                queue = own.queue(name)
                for step in range(5):
                    column = f"c{(3 * step + which) % 7}"
                    queue.admin.add_columns(pa.schema([(column, pa.int64())]))
                    rows = orders(2, 100 * which + 2 * step).to_pylist()
                    queue.load([row | {column: row["number"]} for row in rows])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(grow, range(4)))
    for name in names:
        rows = store.queue(name).fire("all").messages.to_pylist()
        assert len(rows) == 40
        for row in rows:
            which, step = row["number"] // 100, row["number"] % 100 // 2
            assert row[f"c{(3 * step + which) % 7}"] == row["number"]


def value(column, number):
    """A value of a column that was added later."""
    return (f"text {number}", number * column, [number, column])[column % 3]


def test_stores_of_one_process_stay_apart(catalog_url, tmp_path, request):
    """Queues, consumers and pools of the same names, at work in two stores at once."""
    with ExitStack() as stack:
        addresses = [Address.of(tmp_path / f"store-{number}") for number in range(2)]
        if not catalog_url.startswith("sqlite"):
            server = request.getfixturevalue("postgres")
            urls = [stack.enter_context(server.database()) for _ in range(2)]
            addresses = [Address(u, a.storage) for u, a in zip(urls, addresses, strict=True)]
        stores = [stack.enter_context(Store(address)) for address in addresses]
        handled, pools = [[], []], []
        for which, store in enumerate(stores):
            for name in ("red", "green"):
                make_queue(store, name, shards=2, dedup=("number",))

            def handler(row, which=which):
                handled[which].append((row["_queue"], row["number"]))
                return True

            pool = ConsumerPool(store, ["red", "green"], handler, name="till", concurrency=3)
            pools.append(stack.enter_context(pool))

        def load(which):
            for number in range(which, 30, 2):
                for name in ("red", "green"):
                    # The other store has loaded the same.
                    stores[which % 2].queue(name).load(orders(1, number // 2))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(load, range(4)))
        until(lambda: all(len(each) >= 30 for each in handled))
        for pool in pools:
            assert pool.drain(PATIENCE)
        for store in stores:
            assert (
                sum(row["waiting"] + row["in_flight"] for row in store.view("queues").to_pylist())
                == 0
            )
            audit(store)
    wanted = [(name, number) for name in ("green", "red") for number in range(15)]
    assert [sorted(each) for each in handled] == [wanted, wanted]


def test_producers_of_the_same_keys_load_each_once(store, address):
    """Single and larger loads, from threads of several stores, into several queues."""
    loaded = {"red": set(), "green": set()}
    for name in loaded:
        make_queue(store, name, shards=4, dedup=("number",))
    start = threading.Barrier(6)

    def produce(which):
        chance = random.Random(which)
        with Store(address) as own:
            start.wait()
            for _ in range(12):
                name, first = chance.choice([*loaded]), chance.randrange(100)
                count = chance.choice((1, 1, 5, 40))
                own.queue(name).load(orders(count, first))
                loaded[name].update(range(first, first + count))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(produce, range(6)))
    for name, numbers in loaded.items():
        assert main(store.queue(name)) == sorted(numbers)


def test_a_backup_keeps_what_many_consumers_of_many_queues_hold(store, tmp_path):
    chance = random.Random(3)
    queues = [make_queue(store, f"q{number}", shards=3) for number in range(3)]
    consumers = [store.consumer(f"till-{number}") for number in range(3)]
    for step in range(40):
        chance.choice(queues).load(orders(chance.randrange(1, 6), 10 * step))
        queue = chance.choice(queues)
        firing = queue.fire(3, consumer=chance.choice(consumers))
        if step % 3:
            chance.choice((queue.delete, queue.sideline, queue.reload))(firing)
    before = contents(store)
    store.admin.backup(str(tmp_path / "backup"))
    for queue in queues:
        queue.delete(queue.fire("all"))
    Store.restore(str(tmp_path / "backup"), str(tmp_path / "new"))
    with Store.open(tmp_path / "new") as restored:
        assert contents(restored) == before
        assert holders(restored) == {"till-0", "till-1", "till-2"}
        for queue in restored.queues():
            restored.queue(queue).sweep(0)
            restored.queue(queue).shovel(force=True)
            rows = before[queue, "main"] + before[queue, "sideline"]
            again = restored.queue(queue).fire("all").messages
            assert sorted(numbers_of(again)) == sorted(row["number"] for row in rows)
        audit(restored)


def holders(store):
    """The names of the consumers that hold messages."""
    return {row["consumer"] for row in store.view("slices").to_pylist() if row["state"] == "fired"}


def contents(store):
    """All messages, with where they are."""
    columns = ["_message_id", "number", "_shard", "_attempt", "_fired_at"]
    return {
        (name, magazine): store.queue(name).browse(magazine=magazine).select(columns).to_pylist()
        for name in store.queues()
        for magazine in ("main", "sideline")
    }
