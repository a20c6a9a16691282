"""A pool with a circuit breaker: it stops firing while calls fail, and probes."""

import threading
import time
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from ignis_sink.options import SinkOptions
from ignis_sink.settle import SettleBatchWriter
from queue_core import Breaker, ConsumerPool, Predicate, batch_handler, limit
from queue_core.catalog.records.breakers import SharedBreaker
from queue_core.errors import BadOption
from queue_core.handling.breaker_state import BreakerState
from queue_core.handling.gate import Gate
from queue_core.pool import breaking
from queue_core.pool.breaking import LEASE_SECONDS, PoolBreaker
from tests.command_line import answer
from tests.factories import make_queue, numbers_of, orders
from tests.waiting import PATIENCE, Caller, until

QUICK = Breaker(of=4, pause=0.1, max_pause=0.2)


class Service:
    """A handler whose service can be down."""

    def __init__(self, down=True):
        self.down = down
        self.calls = Counter()
        self.handled = []
        self.lock = threading.Lock()

    def __call__(self, message):
        with self.lock:
            self.calls[message["customer"]] += 1
        if self.down:
            raise ConnectionError("503")
        with self.lock:
            self.handled.append(message["number"])
        return True


@pytest.fixture
def queue(store):
    # A retry would come back to main during a slow test.
    return make_queue(store, shards=2, retry=None)


def attempts(queue):
    return set(queue.browse().column("_attempt").to_pylist())


@pytest.mark.parametrize(
    "selector",
    [
        None,
        pytest.param("number >= 0", marks=pytest.mark.nightly),
        Predicate(lambda b: b["number"].is_valid(), ["number"]),
    ],
)
def test_an_outage_sidelines_few_messages_and_the_end_of_it_is_noticed(store, queue, selector):
    queue.load(orders(500))
    service = Service()
    begin = time.monotonic()

    with ConsumerPool(store, "orders", service, concurrency=3, breaker=QUICK, batch=50) as pool:
        until(lambda: service.calls.total() >= 6)
        assert not pool.drain(0.1)
        called, start = service.calls.total(), time.monotonic()
        time.sleep(0.5)
        # At most a probe in each pause.
        probes = service.calls.total() - called
        assert probes <= (time.monotonic() - start) / QUICK.pause + 1
        assert attempts(queue) == {0}
        service.down = False
        outage = time.monotonic() - begin
        assert pool.drain(PATIENCE)
    failed = queue.peek(500, magazine="sideline").num_rows
    # A call of each worker when it opens, and then the probes.
    assert 3 <= failed <= 10 + outage / QUICK.pause
    assert len(service.handled) == len(set(service.handled)) == 500 - failed
    assert store.view("breakers").column("state").to_pylist() == ["closed"]


def test_a_batch_handler_makes_a_call_per_message(store, queue):
    queue.load(orders(300))
    sizes, down = [], threading.Event()
    down.set()

    @batch_handler
    def handler(batch):
        sizes.append(batch.num_rows)
        if down.is_set():
            raise ConnectionError("503")
        return [True] * batch.num_rows

    with ConsumerPool(store, "orders", handler, concurrency=1, batch=30, breaker=QUICK) as pool:
        until(lambda: len(sizes) >= 3)
        assert sizes[:3] == [30, 1, 1]
        down.clear()
        assert pool.drain(PATIENCE)

    assert pool.counts["deleted"] == 300 - pool.counts["sidelined"]


def test_rejections_do_not_open_it(store, queue):
    queue.load(orders(50))

    with ConsumerPool(store, "orders", lambda _: False, concurrency=1, breaker=QUICK) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"sidelined": 50}

    assert store.view("breakers").num_rows == 0


def test_calls_that_take_too_long_open_it(store, queue):
    queue.load(orders(200))
    slow = threading.Event()
    slow.set()

    def handler(message):
        while slow.is_set():
            time.sleep(0.01)
        return True

    with ConsumerPool(
        store, "orders", handler, concurrency=2, handler_timeout=0.1, breaker=QUICK
    ) as pool:
        until(lambda: store.view("breakers").num_rows == 1)
        slow.clear()
        assert pool.drain(PATIENCE)

    assert pool.counts["deleted"] >= 100


def test_a_check_is_asked_instead_of_a_probe(store, queue):
    queue.load(orders(100))
    service, asked = Service(), []

    def check():
        asked.append(service.down)
        return not service.down

    breaker = Breaker(of=4, pause=0.05, max_pause=0.1, check=check)
    with ConsumerPool(store, "orders", service, concurrency=1, breaker=breaker) as pool:
        until(lambda: len(asked) >= 3)
        assert service.calls.total() == 2
        service.down = False
        assert pool.drain(PATIENCE)

    assert pool.counts["sidelined"] == 2


def test_a_check_that_fails_is_reported_once(store, queue, caplog):
    queue.load(orders(10))
    asked = []

    def check():
        asked.append(True)
        raise TypeError("check() takes 1 argument")

    breaker = Breaker(of=4, pause=0.05, max_pause=0.05, check=check)
    with ConsumerPool(store, "orders", Service(), concurrency=1, breaker=breaker):
        until(lambda: len(asked) >= 2)

    (record,) = [each for each in caplog.records if "its check failed" in each.message]
    assert (record.levelname, "TypeError" in record.message) == ("WARNING", True)


def test_a_check_that_needs_an_argument_is_refused(store, queue):
    with pytest.raises(BadOption, match=r"check=.* is called with"):
        ConsumerPool(store, "orders", Service(), breaker=Breaker(check=lambda value: True))


def test_two_pools_share_it_by_its_name(store, queue):
    queue.load(orders(10))
    failing, working = Service(), Service(down=False)
    slow = Breaker(of=4, pause=60, max_pause=60, name="shop")

    with ConsumerPool(store, "orders", failing, concurrency=1, breaker=slow) as pool:
        until(lambda: store.view("breakers").num_rows == 1)
        with ConsumerPool(store, "orders", working, concurrency=1, breaker=slow) as other:
            assert not other.drain(0.3)
            assert working.calls.total() == 0
            store.admin.breaker("shop").close()
            failing.down = False
            assert other.drain(PATIENCE)
            assert pool.drain(PATIENCE)

    assert len(failing.handled) + len(working.handled) == 8
    (row,) = store.view("breakers").to_pylist()
    assert (row["state"], row["forced"]) == ("closed", True)


def test_a_person_opens_it_and_leaves_it_to_itself_again(store, queue):
    queue.load(orders(10))
    service = Service(down=False)
    store.admin.breaker("orders").open()

    with ConsumerPool(store, "orders", service, concurrency=1, breaker=QUICK) as pool:
        assert not pool.drain(0.3)
        assert service.calls.total() == 0
        store.admin.breaker("orders").release()
        assert pool.drain(PATIENCE)

    assert len(service.handled) == 10
    # A breaker that has never opened has no row.
    store.admin.breaker("typo").release()
    assert store.view("breakers").column("breaker").to_pylist() == ["orders"]


def test_a_probe_of_a_pool_that_stops_is_left_to_others(store, queue):
    queue.load(orders(20))
    service = Service()

    with ConsumerPool(store, "orders", service, concurrency=1, breaker=QUICK):
        until(lambda: service.calls.total() >= 3)
    assert numbers_of(queue.peek(20, magazine="sideline"))
    service.down = False

    with ConsumerPool(store, "orders", service, concurrency=1, breaker=QUICK) as pool:
        assert pool.drain(PATIENCE)
    assert queue.peek(20).num_rows == 0


def test_the_command_line_shows_and_turns_it(store, queue, ignis):
    assert answer(ignis("--json", "breaker", "open", "orders"))
    (row,) = answer(ignis("--json", "breakers"))
    assert (row["breaker"], row["state"], row["forced"]) == ("orders", "open", True)

    assert "left to itself" in ignis("breaker", "auto", "orders").stdout
    assert store.view("breakers").column("forced").to_pylist() == [False]
    assert "closed" in ignis("breaker", "close", "orders").stdout


def test_names_that_cannot_be_are_refused(store):
    for name in ("", "n" * 201):
        with pytest.raises(BadOption, match="breaker"):
            store.admin.breaker(name)
    assert repr(store.admin.breaker("b")) == "<BreakerSwitch of 'b'>"


@pytest.mark.parametrize("breaker", [3, "open"])
def test_other_things_are_no_breakers(store, queue, breaker):
    with pytest.raises(BadOption, match="give a Breaker"):
        ConsumerPool(store, "orders", lambda _: True, breaker=breaker)


def test_a_breaker_that_never_opens_writes_nothing(store, queue):
    queue.load(orders(200))

    with ConsumerPool(store, "orders", lambda _: True, breaker=Breaker()) as pool:
        assert pool.drain(PATIENCE)

    assert store.view("breakers").num_rows == 0


def test_when_the_probe_finds_no_message_the_pool_counts_as_idle(store, queue):
    queue.load(orders(2))

    with ConsumerPool(store, "orders", Service(), concurrency=1, breaker=QUICK) as pool:
        assert pool.drain(PATIENCE)

    assert queue.peek(9, magazine="sideline").num_rows == 2


def test_a_queue_that_has_ended_is_not_asked_for_the_message_of_a_probe(store, queue):
    make_queue(store, "ended").admin.deactivate()
    queue.load(orders(2))

    names = ["orders", "ended"]
    with ConsumerPool(store, names, Service(), concurrency=1, breaker=QUICK) as pool:
        until(lambda: store.view("breakers").num_rows == 1)
        assert pool.drain(PATIENCE)


def test_a_queue_whose_limit_refuses_the_probe_leaves_it_to_others(store, queue, monkeypatch):
    """They waited for the end of its lease."""
    monkeypatch.setattr(breaking, "LEASE_SECONDS", 10 * PATIENCE)
    limited = make_queue(store, "limited", limits=limit(in_flight=1))
    limited.load(orders(2, 1000))
    assert len(limited.fire(1)) == 1
    queue.load(orders(500))
    service, asked, fires_probe = Service(), [], Gate.fires_probe

    def noted(gate, source):
        fires = fires_probe(gate, source)
        asked.extend([source.trouble.queue] if fires else [])
        return fires

    monkeypatch.setattr(Gate, "fires_probe", noted)
    names = ["limited", "orders"]
    with ConsumerPool(store, names, service, concurrency=1, batch=50, breaker=QUICK):
        until(lambda: "limited" in asked)
        service.down = False
        until(lambda: not queue.browse().num_rows)
    assert not [number for number in service.handled if number >= 1000]


# the state that all processes share


def tripped(store):
    """A breaker whose probe is due."""
    shared = SharedBreaker(store.catalog, QUICK, "shop", LEASE_SECONDS)
    shared.trip("till-0")
    time.sleep(1.5 * QUICK.pause)
    return shared


@pytest.mark.each_catalog
def test_two_processes_never_claim_the_same_probe(store, monkeypatch):
    one, claimed, others = tripped(store), BreakerState.claimed, []
    two = SharedBreaker(store.catalog, QUICK, "shop", LEASE_SECONDS)

    def slowly(*given):
        if not others:
            others.append(Caller(lambda: two.look("till-2")))
            time.sleep(0.3)
        return claimed(*given)

    monkeypatch.setattr(BreakerState, "claimed", slowly)

    assert one.look("till-1").probes
    assert not others[0].done().probes


def test_a_pool_that_ends_leaves_the_probe_to_others(store):
    tripped(store)
    pool = PoolBreaker(store.catalog, QUICK, "shop", "till-1", 1, lambda: None)
    assert pool.plan("orders") == 1

    pool.stop()

    assert store.view("breakers").column("state").to_pylist() == ["open"]


def test_a_query_that_starts_again_in_its_process_has_the_numbers_of_its_own_breaker(store, queue):
    queue.load(orders(2))
    address = {"catalog": store.address.catalog, "storage": store.address.storage}
    options = SinkOptions.of({**address, "queue": "orders", "mode": "settle"})

    for breaker, states in ((Breaker(of=20), []), (Breaker(of=1), ["open"])):
        (failed,) = queue.fire(1).ids.to_pylist()
        outcome = {"outcome": "sideline", "kind": "exception", "reason": "503"}
        rows = pa.RecordBatch.from_pylist([{"_message_id": failed, **outcome}])
        writer = SettleBatchWriter(replace(options, breaker=breaker))
        writer.commit([writer.write(iter([rows]))])
        assert store.view("breakers").column("state").to_pylist() == states
