"""Small loads of several threads: one transaction for all, and to each its own ids and errors."""

import signal
import threading
import time
from contextlib import contextmanager
from functools import partial
from unittest import mock

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.errors import CatalogUnavailable, QueueDeactivated, QueueFull
from queue_core.support.faults import InjectedFault, arm
from queue_core.waiting.joint_load import JOINED_BYTES, JointLoads, commit_load
from tests.contract.callers import Seller
from tests.factories import main, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, all_at_once, until, waiting_loads

pytestmark = pytest.mark.each_catalog


@contextmanager
def counted_writes(store, before=lambda number: None):
    """Count the transactions that write; call *before* with the number of each."""
    numbers = []
    write = store.catalog.write

    def counted(*arguments, **options):
        numbers.append(len(numbers))
        before(numbers[-1])
        return write(*arguments, **options)

    with mock.patch.object(store.catalog, "write", counted):
        yield numbers


def at_once(store, first, *others, then=lambda: None):
    """
    Run *others* in threads while the transaction of *first* is open, so that they are joined.

    Return the result or the error of each, and the number of transactions.
    """
    go_on = threading.Event()
    results = {}

    def run(at, work):
        try:
            results[at] = work()
        except BaseException as error:  # noqa: BLE001 - as the caller would see it
            results[at] = error

    def hold(number):
        if number == 0:
            assert go_on.wait(PATIENCE)

    with counted_writes(store, hold) as writes:
        threads = []
        for at, work in enumerate((first, *others)):
            threads.append(threading.Thread(target=run, args=(at, work)))
            threads[-1].start()
            until(lambda at=at: writes if at == 0 else waiting_loads(store) == at)
        then()
        go_on.set()
        for thread in threads:
            thread.join(PATIENCE)
    return [results[at] for at in range(len(threads))], len(writes)


def loading(queue, first, count=1):
    return lambda: queue.load(orders(count, first))


def test_loads_of_waiting_threads_are_one_transaction_and_one_segment(store):
    queue = make_queue(store, shards=3, key="customer")
    works = [loading(queue, 10 * n, n) for n in range(1, 9)]

    results, writes = at_once(store, loading(queue, 0), *works)

    assert writes == 2
    found = queue.browse().to_pylist()
    number_of = {row["_message_id"]: row["number"] for row in found}
    assert [[number_of[id] for id in ids.to_pylist()] for ids in results] == [
        [0],
        *([10 * n + at for at in range(n)] for n in range(1, 9)),
    ]
    assert len(set(store.view("slices", "orders")["segment_id"].to_pylist())) == 2
    assert store.admin.fsck(deep=True).num_rows == 0


@pytest.mark.parametrize("grow", ["by hand", "elsewhere", "hold", "ttl"])
def test_a_queue_that_gets_columns_while_loads_wait_refuses_none_of_them(store, grow):
    queue, other = make_queue(store), make_queue(store, "other")

    def then():
        extra = pa.schema([pa.field("extra", pa.string())])
        if grow == "by hand":
            queue.admin.add_columns(extra)
        elif grow == "elsewhere":
            store.queue("orders").admin.add_columns(extra)
            queue.refresh()
        else:
            # Adds its column before it waits for the others.
            late.start()
            while len(queue.refresh().schema) == 3:
                time.sleep(0.001)

    late = threading.Thread(target=lambda: queue.load(orders(1, 9), **{grow: 0.0}))
    # On PostgreSQL, loads into several queues do not wait for each other.
    joined = queue if store.catalog.engine.dialect.name == "postgresql" else other
    works = [loading(queue, 1), loading(joined, 20, 2), loading(queue, 3)]

    results, _ = at_once(store, loading(queue, 0), *works, then=then)
    if late.ident is not None:
        late.join(PATIENCE)

    assert [len(ids) for ids in results] == [1, 1, 2, 1]
    found = numbers_of(queue.browse()) + numbers_of(other.browse())
    assert sorted(number for number in found if number != 9) == [0, 1, 3, 20, 21]


def test_a_load_that_adds_a_column_does_not_mind_a_thread_that_read_before(store, monkeypatch):
    queue = make_queue(store)
    before, add = queue.opened.info, queue.opened.add_columns

    def overtaken(schema):
        grown = add(schema)
        queue.opened.info = before  # of a refresh that began earlier and ends now
        return grown

    monkeypatch.setattr(queue.opened, "add_columns", overtaken)
    queue.load(orders(1), ttl=3600)
    assert queue.peek().column("_expires_at").null_count == 0
    assert "_expires_at" in queue.schema.names


def test_a_load_with_a_ttl_does_not_mind_a_thread_that_adds_the_column_first(store, monkeypatch):
    queue = make_queue(store)
    now = store.catalog.now

    def overtaken():
        monkeypatch.setattr(store.catalog, "now", now)
        queue.opened.add_columns(pa.schema([("_expires_at", pa.timestamp("us", "UTC"))]))
        return now()

    monkeypatch.setattr(store.catalog, "now", overtaken)
    queue.load(orders(1), ttl=3600)
    assert queue.peek().column("_expires_at").null_count == 0


def test_messages_of_each_producer_stay_in_order(store):
    queue = make_queue(store)
    with counted_writes(store) as writes:
        queue.load(orders(1))
        assert len(writes) == 1, "it finds nobody, and waits for nobody"
    queue.delete(queue.fire())
    producers, each = 8, 25

    def produce(producer):
        for number in range(each):
            queue.load(orders(1, 1_000 * producer + number))

    all_at_once(*(partial(produce, n) for n in range(producers)))

    fired = numbers_of(queue.fire("all").messages)
    assert len(fired) == producers * each
    for producer in range(producers):
        mine = [number for number in fired if number // 1_000 == producer]
        assert mine == [1_000 * producer + number for number in range(each)]


def test_a_deactivated_queue_is_no_reason_to_refuse_loads_into_others(tmp_path):
    """On SQLite, where loads into several queues share a transaction."""
    with Store.open(tmp_path) as store:
        queue, closed = make_queue(store), make_queue(store, "closed")
        works = [loading(queue, 1), loading(closed, 2), loading(queue, 3)]

        results, _ = at_once(store, loading(queue, 0), *works, then=lambda: deactivate(tmp_path))

        kinds = [type(result) for result in results]
        assert kinds == [pa.Int64Array, pa.Int64Array, QueueDeactivated, pa.Int64Array]
        assert main(queue) == [0, 1, 3]
        assert store.admin.fsck(deep=True).num_rows == 0


def test_new_settings_of_a_queue_repeat_no_load_into_another_one(tmp_path):
    """On SQLite, as above: a load into a third one is refused, and each is then made by itself."""
    with Store.open(tmp_path) as store:
        queue, closed, changed = (make_queue(store, name) for name in ("orders", "closed", "new"))
        works = [loading(queue, 1), loading(closed, 2), loading(changed, 3)]

        def then():
            deactivate(tmp_path)
            with Store.open(tmp_path) as other:
                other.queue("new").admin.change_settings(max_deliveries=3)

        results, _ = at_once(store, loading(queue, 0), *works, then=then)

        kinds = [type(result) for result in results]
        assert kinds == [pa.Int64Array, pa.Int64Array, QueueDeactivated, pa.Int64Array]
        assert main(queue) == [0, 1]
        assert numbers_of(changed.browse()) == [3]


def deactivate(folder):
    with Store.open(folder) as other:
        other.queue("closed").admin.deactivate()


def test_loads_that_meet_new_settings_are_made_by_them(store, address):
    queue = make_queue(store)
    stale = store.queue("orders")

    def bound():
        with Store(address) as other:
            other.queue("orders").admin.change_settings(max_size=2, overflow="fail")

    results, _ = at_once(
        store, loading(queue, 0), *(loading(stale, n) for n in range(1, 4)), then=bound
    )

    kinds = [type(result) for result in results]
    assert (kinds.count(pa.Int64Array), kinds.count(QueueFull)) == (2, 2)
    assert queue.browse().num_rows == 2


@pytest.mark.parametrize(
    "settings",
    [{"max_size": 10}, {"dedup": "number"}, {"policy": "latest", "key": "customer"}],
)
def test_loads_that_depend_on_queued_messages_are_not_joined(store, settings):
    queue = make_queue(store, **settings)
    with mock.patch.object(JointLoads, "__call__") as joined:
        queue.load(orders(1))
    joined.assert_not_called()
    assert queue.browse().num_rows == 1


def test_large_loads_and_those_of_a_caller_are_not_joined(store):
    queue = make_queue(store)
    with Seller(store, "driver") as caller, mock.patch.object(JointLoads, "__call__") as joined:
        queue.load(orders(JOINED_BYTES // 8))
        with caller.connected() as connection:
            caller.sell(connection, 1)
            queue.within(connection).load(orders(1))
    joined.assert_not_called()


@pytest.mark.parametrize(("point", "loaded"), [("before_commit", 1), ("committed", 4)])
def test_a_joint_load_that_dies_has_happened_for_all_or_for_none(store, point, loaded):
    queue = make_queue(store)
    arm(f"load.{point}:2=raise")

    results, _ = at_once(store, *(loading(queue, n) for n in range(4)))

    kinds = sorted((type(result) for result in results[1:]), key=str)
    assert kinds == [CatalogUnavailable, CatalogUnavailable, InjectedFault]
    assert all(error.outcome_unknown for error in results[1:] if type(error) is CatalogUnavailable)
    assert main(queue) == list(range(loaded))
    assert store.admin.fsck(deep=True).num_rows == 0
    queue.load(orders(1, 9))


def test_an_interrupted_thread_leaves_the_others_in_doubt_and_loads_go_on(store):
    queue = make_queue(store)
    commits = []

    def interrupted(*arguments):
        commits.append(arguments)
        if len(commits) == 2:
            raise KeyboardInterrupt
        return commit_load(*arguments)

    with mock.patch("queue_core.waiting.joint_load.commit_load", interrupted):
        results, _ = at_once(store, *(loading(queue, n) for n in range(4)))

    kinds = [type(result) for result in results[1:]]
    assert sorted(kinds, key=str) == [KeyboardInterrupt, CatalogUnavailable, CatalogUnavailable]
    assert all(error.outcome_unknown for error in results[2:] if type(error) is CatalogUnavailable)
    assert len(queue.load(orders(1, 9))) == 1


def test_the_handler_of_a_signal_may_load_while_the_main_thread_loads(store):
    """As one of SIGTERM does that tells others of its end."""
    queue, signals = make_queue(store), [signal.SIGUSR1]

    def interrupted(*given):
        if signals:
            signal.raise_signal(signals.pop())
        return commit_load(*given)

    before = signal.signal(signal.SIGUSR1, lambda *_: queue.load(orders(1, 1)))
    try:
        with mock.patch("queue_core.waiting.joint_load.commit_load", interrupted):
            queue.load(orders(1))
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert main(queue) == [0, 1]


def test_a_child_process_waits_for_no_thread_of_its_parent(store):
    queue = make_queue(store)

    def in_child():
        with mock.patch("queue_core.waiting.joint_load.os.getpid", return_value=-1):
            queue.load(orders(1, 1))

    at_once(store, loading(queue, 0), then=in_child)
    assert main(queue) == [0, 1]


def test_the_first_threads_of_a_child_process_wait_for_no_thread_of_its_parent(store):
    queue = make_queue(store)
    overtaking = []

    def overtaken():
        if not overtaking:
            overtaking.append(threading.Thread(target=loading(queue, 2)))
            overtaking[0].start()
            overtaking[0].join(5)
            overtaking.append(overtaking[0].is_alive())
        return threading.RLock()

    def in_child():
        overtaken_first = mock.Mock(wraps=threading, RLock=overtaken)
        with (
            mock.patch("queue_core.waiting.joint_load.os.getpid", return_value=-1),
            mock.patch("queue_core.waiting.joint_load.threading", overtaken_first),
        ):
            queue.load(orders(1, 1))

    at_once(store, loading(queue, 0), then=in_child)
    overtaking[0].join(PATIENCE)
    assert overtaking[1] is False
    assert main(queue) == [0, 1, 2]
