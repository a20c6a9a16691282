"""What a handler returns is loaded in the transaction that settles its message: once, or never."""

import itertools
import threading
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from queue_core import (
    BadOption,
    ConsumerPool,
    IdSet,
    Later,
    NoSuchQueue,
    Reject,
    Retry,
    Settlement,
    batch_handler,
    constant,
)
from queue_core.catalog.poller import Poller
from queue_core.handling.handler import settlement_rows
from queue_core.handling.output import OutputRows
from queue_core.handling.verdicts import Verdicts
from queue_core.pool import output as pool_output
from queue_core.pool.output import PoolOutcomes, PoolOutput
from queue_core.segments import stager
from queue_core.values.model import StagedOutput
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting.settled_load import settle_and_load
from queue_core.waiting.smart.load import TRIES, SmartLoad
from queue_core.waiting.smart.validate import StaleSnapshot
from tests.books import audit, leftover_files
from tests.factories import (
    ORDERS,
    drop,
    main,
    make_filled,
    make_queue,
    make_staged,
    numbers_of,
    orders,
)
from tests.waiting import PATIENCE, Caller, standing, until

RESULTS = pa.schema([("number", pa.int64()), ("text", pa.string())])


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


@pytest.fixture
def results(store):
    return store.create_queue("results", RESULTS)


def handled(store, handler, *, of="orders", **how):
    how = {"retry": Retry(attempts=1)} | how
    with ConsumerPool(store, of, handler, output="results", **how) as pool:
        assert pool.drain(PATIENCE)
        # Messages that are tried again come back a little later.
        until(lambda: all(store.view("sideline").column("dead").to_pylist()))
        assert pool.drain(PATIENCE)
    return pool.counts


def failures(queue):
    return Counter((row["kind"], row["reason"]) for row in queue.failures().to_pylist())


@dataclass
class Result:
    number: int
    text: str


def test_a_handler_returns_a_row_rows_or_a_table(store, queue, results):
    queue.load(orders(10))

    def handle(message):
        number = message["number"]
        one = {"number": number, "text": "one"}
        return [
            one,
            Result(number, "two"),
            [one, one],
            (dict(one) for _ in range(3)),
            pa.table({"number": [number]}),
            (True, one),
            ("delete", [Result(number, "two")]),
            [],
            (True, None),
            True,
        ][number]

    assert handled(store, handle, batch=4) == {"deleted": 10}
    assert Counter(numbers_of(results.browse())) == {0: 1, 1: 1, 2: 2, 3: 3, 4: 1, 5: 1, 6: 1}
    assert store.admin.fsck().to_pylist() == []


def test_a_message_that_is_not_deleted_gives_no_rows(store, queue, results):
    queue.load(orders(6))
    tried = Counter()

    def handle(message):
        number = message["number"]
        tried[number] += 1
        row = {"number": number, "text": str(tried[number])}
        match number:
            case 1 if tried[number] == 1:
                raise Later(0.1)
            case 2 if tried[number] == 1:
                raise ConnectionError("503")
            case 3:
                raise Reject("nobody wants it")
            case 4:
                return False, row
            case 5 if tried[number] == 1:
                return "reload", row
        return row

    counts = handled(store, handle, retry=Retry(attempts=2, backoff=constant(0)), concurrency=1)

    assert counts["deleted"] == 4
    rows = results.browse().select(["number", "text"]).to_pylist()
    assert sorted((row["number"], row["text"]) for row in rows) == [
        (0, "1"),
        (1, "2"),
        (2, "2"),
        (5, "2"),
    ]
    assert failures(queue) == {
        ("exception", "ConnectionError: 503"): 1,
        ("rejected", "nobody wants it"): 1,
        ("rejected", None): 2,
    }


def test_a_row_that_does_not_fit_fails_its_message_alone(store, queue, results):
    queue.load(orders(100))

    def handle(message):
        number = message["number"]
        row = {"number": number}
        return row | ({"txt": "x"} if number == 7 else {"text": 5} if number == 8 else {})

    assert handled(store, handle) == {"deleted": 98, "sidelined": 2}
    assert len(numbers_of(results.browse())) == 98
    reasons = " ".join(reason for _, reason in failures(queue))
    assert {kind for kind, _ in failures(queue)} == {"exception"}
    assert "queue 'results' has no column 'txt'; did you mean 'text'?" in reasons
    assert "queue 'results': column 'text'" in reasons


@pytest.mark.parametrize("form", ["table", "ids", "list", "pair"])
def test_a_batch_handler_gives_rows_for_its_messages(store, queue, results, form):
    queue.load(orders(50))

    @batch_handler
    def handle(batch):
        numbers = batch.column("number").to_pylist()
        if form == "table":
            return batch.select(["number"])
        if form == "ids":
            odd = [n % 2 == 1 for n in numbers]
            twice = pa.concat_tables([pa.table(batch.filter(pa.array(odd)))] * 2)
            return twice.select(["_message_id", "number"])
        if form == "list":
            return [{"number": n} if n % 2 else Reject(f"{n}") if n % 4 else True for n in numbers]
        done = [n % 2 == 1 for n in numbers]
        return done, batch.select(["number"])

    counts = handled(store, handle, batch=20)

    every, odd, twos = range(50), range(1, 50, 2), range(2, 50, 4)
    found = Counter(numbers_of(results.browse()))
    if form == "table":
        assert found == Counter(every)
        assert counts == {"deleted": 50}
    elif form == "ids":
        assert found == Counter([*odd, *odd])
        assert counts == {"deleted": 50}
    elif form == "list":
        assert found == Counter(odd)
        assert failures(queue) == Counter(("rejected", str(n)) for n in twos)
    else:
        assert found == Counter(odd)
        assert counts == {"deleted": 25, "sidelined": 25}


def test_rows_of_no_message_fail_the_batch(store, queue, results):
    queue.load(orders(4))

    @batch_handler
    def handle(batch):
        return pa.table({"number": [1, 2]})

    assert handled(store, handle) == {"sidelined": 4}
    ((_, reason),) = failures(queue)
    assert "2 rows for queue 'results' and 4 messages" in reason
    assert "_message_id" in reason
    assert results.browse().num_rows == 0


def deleted_with_rows(queue, ids, output, staged):
    """Settle messages with one row each; return the ids of those that are not held any more."""
    store = queue.store
    return settle_and_load(
        store.catalog,
        store.storage,
        [queue.info],
        Settlement(deleted=IdSet.of(ids)),
        None,
        None,
        output.info,
        StagedOutput(tuple(staged), ids.to_numpy()),
        OnFull(),
    )


def test_rows_of_lost_messages_are_left_out_of_each_segment(store):
    queue, output = make_filled(store, 4), make_queue(store, "output")
    ids = queue.fire("all").ids
    queue.delete(ids[2:3])
    staged = [*make_staged(output, orders(2)), *make_staged(output, orders(2, 2))]

    lost = deleted_with_rows(queue, ids, output, staged)

    assert lost.tolist() == ids[2:3].to_pylist()
    assert numbers_of(output.browse()) == [0, 1, 3]
    audit(store)


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({"policy": "latest"}, 1.25),
        ({"policy": "merge(sum(amount))"}, 2.25),
        ({"dedup": ["number"]}, 2.25),
    ],
    ids=["latest", "merge", "dedup"],
)
def test_rows_of_lost_messages_are_nothing_to_the_rules_of_the_output_queue(
    store, settings, total, monkeypatch
):
    queue, output = make_filled(store, 2), make_queue(store, "output", key="customer", **settings)
    ids = queue.fire("all").ids
    queue.delete(ids[1:])
    rows = orders(2, 4, customers=1)

    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    deleted_with_rows(queue, ids, output, make_staged(output, rows))

    # What was decided about the rows of the lost message is gone, too.
    assert leftover_files(store) == set()
    found = output.browse().select(ORDERS.names)
    assert found.to_pylist() == rows.slice(0, 1).to_pylist()
    # Whoever has the lost message loads its row.
    output.load(rows.slice(1))
    assert pc.sum(output.browse().column("amount")).as_py() == total
    audit(store)


def test_rows_of_messages_that_others_have_got_are_not_loaded(store, queue, results):
    queue.load(orders(6))
    entered, goes_on = threading.Semaphore(0), threading.Event()

    def slow(message):
        entered.release()
        assert goes_on.wait(PATIENCE)
        return {"number": message["number"], "text": "slow"}

    with ConsumerPool(
        store, "orders", slow, output="results", concurrency=1, name="slow", tasks=()
    ) as pool:
        assert entered.acquire(timeout=PATIENCE)
        # A sweep gives half of its messages to somebody else.
        held = queue.browse().select(["_message_id", "number"]).to_pylist()
        taken = [row["_message_id"] for row in held if row["number"] % 2]
        assert queue.reload(taken, consumer="slow") == 3
        firing = queue.fire(3, selector="number % 2 = 1", consumer=store.consumer("other"))
        assert firing.messages.num_rows == 3
        goes_on.set()
        until(lambda: pool.counts.get("lost") == 3)

    assert pool.counts == {"deleted": 3, "lost": 3}
    assert main(results) == [0, 2, 4]
    queue.delete(firing)
    assert queue.browse().num_rows == 0
    assert store.admin.fsck().to_pylist() == []


def test_the_settlements_of_many_batches_are_one_load(store, queue, results):
    queue.load(orders(400))
    gate = threading.Barrier(4, timeout=PATIENCE)

    def handle(message):
        if message["number"] % 100 == 0:
            gate.wait()
        return {"number": message["number"]}

    handled(store, handle, concurrency=4)

    assert main(results) == list(range(400))
    # Not one segment per message, and none of its own for every batch.
    assert len(store.view("slices").filter(pc.field("queue") == "results")) <= 40


def test_a_pool_may_load_into_a_queue_that_it_reads(store, monkeypatch):
    wait = Poller.wait

    def late(poller, until):
        # The thread that sees changes of the catalog sees them long after the workers are idle.
        time.sleep(0.3)
        return wait(poller, until)

    monkeypatch.setattr(Poller, "wait", late)
    make_filled(store, 20, shards=4, key=None)

    def handle(message):
        generation = message["amount"]
        if generation >= 1000:
            return True
        return [{"number": message["number"], "amount": generation + 1000.0}] * 2

    with ConsumerPool(store, "orders", handle, output="orders", concurrency=4, batch=3) as pool:
        assert pool.drain(PATIENCE)
    assert pool.counts == {"deleted": 60}


@pytest.mark.each_catalog
@pytest.mark.parametrize("settings", [{}, {"policy": "drop_duplicates"}])
def test_rows_for_the_queue_of_their_message_go_before_loads_that_wait_for_its_room(
    store, settings
):
    queue = make_filled(store, 1, max_size=1, **settings)
    other = Caller(lambda: queue.load(orders(1, 1)))
    until(lambda: standing(store))

    def handle(message):
        if message["amount"] >= 1000:
            return True
        return {"number": message["number"], "amount": message["amount"] + 1000.0}

    with ConsumerPool(store, "orders", handle, output="orders") as pool:
        assert len(other.done()) == 1
        until(lambda: pool.counts.get("deleted") == 4)
    assert pool.counts == {"deleted": 4}


def test_two_pools_in_a_circle_load_into_each_others_queue(store):
    for name in ("ping", "pong"):
        store.create_queue(name, pa.schema([("number", pa.int64())]), shards=3)
    store.queue("ping").load([{"number": n} for n in range(40)])

    def handle(message):
        return {"number": message["number"] + 100} if message["number"] < 1000 else True

    with (
        ConsumerPool(store, "ping", handle, output="pong", concurrency=3, batch=5) as one,
        ConsumerPool(store, "pong", handle, output="ping", concurrency=3, batch=5) as other,
    ):
        until(lambda: one.counts.get("deleted", 0) + other.counts.get("deleted", 0) == 440)
    assert store.queue("ping").browse().num_rows == store.queue("pong").browse().num_rows == 0


@pytest.mark.parametrize("settings", [{"dedup": "number"}, {"policy": "latest"}])
def test_the_rules_of_the_output_queue_hold(store, queue, settings):
    results = store.create_queue("results", RESULTS, key="number", **settings)
    queue.load(orders(30))

    counts = handled(store, lambda message: {"number": message["number"] % 10}, batch=7)

    assert counts == {"deleted": 30}
    assert main(results) == list(range(10))


def test_rows_for_which_others_leave_no_time_to_decide_fail_no_message(store, queue, monkeypatch):
    results = store.create_queue("results", RESULTS, key="number", policy="latest")
    queue.load(orders(3))
    load, left = SmartLoad._load, [StaleSnapshot] * 2 * TRIES

    def overtaken(*arguments):
        if left:
            raise left.pop()
        return load(*arguments)

    monkeypatch.setattr(SmartLoad, "_load", overtaken)
    counts = handled(store, lambda m: {"number": m["number"]}, batch=3, concurrency=1)

    assert (counts, left) == ({"deleted": 3}, [])
    assert main(results) == [0, 1, 2]


def test_a_full_output_queue_is_waited_for(store, queue, monkeypatch, caplog):
    monkeypatch.setattr(pool_output, "ROOM_SECONDS", 0.2)
    results = store.create_queue("results", RESULTS, max_size=10)
    queue.load(orders(50))
    seen = []
    with ConsumerPool(
        store, "orders", lambda m: {"number": m["number"]}, output="results", batch=5
    ) as pool:
        while len(seen) < 50:
            firing = results.fire(7, timeout=PATIENCE)
            assert results.browse().num_rows <= 10
            seen += numbers_of(firing.messages)
            results.delete(firing)
            time.sleep(0.02)
        assert pool.drain(PATIENCE)
    assert sorted(seen) == list(range(50))


def test_a_pool_that_stops_while_its_output_is_full_puts_its_messages_back(
    store, queue, monkeypatch, caplog
):
    monkeypatch.setattr(pool_output, "ROOM_SECONDS", 0.2)
    results = store.create_queue("results", RESULTS, max_size=1)
    results.load([{"number": -1}])
    queue.load(orders(4))
    with ConsumerPool(
        store, "orders", lambda m: {"number": m["number"]}, output="results", batch=1, tasks=()
    ) as pool:
        until(lambda: "the pool waits for room" in caplog.text)
    assert pool.counts.get("deleted") is None
    assert pool.counts["reloaded"] >= 1
    assert numbers_of(results.browse()) == [-1]
    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 3]


def test_a_pool_that_stops_while_its_rows_cannot_be_written_puts_its_messages_back(
    store, queue, results, in_files, caplog
):
    queue.load(orders(20))
    folder = Path(store.storage.folder) / "segments" / "results"
    folder.parent.mkdir(exist_ok=True)
    folder.touch()
    handler = lambda m: {"number": m["number"]}  # noqa: E731 - as a user writes it
    with ConsumerPool(store, "orders", handler, output="results", batch=5, tasks=()) as pool:
        until(lambda: "cannot settle" in caplog.text)
    assert set(pool.counts) == {"reloaded"}
    assert (queue.browse().num_rows, results.browse().num_rows) == (20, 0)
    folder.unlink()


@pytest.mark.parametrize("workers", [1, 3])
def test_what_was_settled_before_the_output_was_full_counts_as_settled(
    store, queue, monkeypatch, caplog, workers
):
    """The rows of a batch, or of all workers, are more than the queue can hold together."""
    monkeypatch.setattr(pool_output, "ROOM_SECONDS", 0.2)
    results = store.create_queue("results", RESULTS, max_size=10)
    queue.load(orders(36))
    began = threading.Barrier(workers)
    with ConsumerPool(
        store,
        "orders",
        batch_handler(lambda batch: (began.wait(PATIENCE), batch.select(["number"]))[1]),
        output="results",
        batch=36 // workers,
        concurrency=workers,
        tasks=(),
    ) as pool:
        until(lambda: "the pool waits for room" in caplog.text)
        until(lambda: results.browse().num_rows)
    loaded = results.browse().num_rows
    assert 0 < loaded <= 10
    assert pool.counts == {"deleted": loaded, "reloaded": 36 - loaded}
    assert queue.browse().num_rows == 36 - loaded


def test_a_message_that_was_reloaded_beside_a_full_output_is_settled_by_its_next_call(
    store, queue, monkeypatch
):
    monkeypatch.setattr(pool_output, "ROOM_SECONDS", 0.2)
    results = store.create_queue("results", RESULTS, max_size=2)
    queue.load(orders(3))
    consumer = store.consumer("pool")
    first, second, third = queue.fire("all", consumer=consumer).ids.to_pylist()

    def given(outcomes, *rows):
        tables = [settlement_rows(pa.array([id]), Verdicts.same(1, o)) for id, o in outcomes]
        numbers = np.full(len(rows), len(outcomes) - 1)
        table = pa.table({"number": pa.array(rows, pa.int64())})
        table = table.append_column("text", pa.nulls(len(rows), pa.string()))
        output = OutputRows(numbers, table) if rows else None
        return PoolOutcomes(pa.Table.from_batches(tables), output)

    output = PoolOutput(results, None, queue, consumer, nullcontext())
    one = given([(first, "reload"), (second, "delete")], 1)
    done, waits = output.settle_all([one, given([(third, "delete")], 2, 3)])
    assert (done.settlement.num_rows, waits.settlement.num_rows) == (2, 0)
    assert queue.fire(1, consumer=consumer).ids.to_pylist() == [first]
    (done,) = output.settle_all([given([(first, "delete")])])
    assert done.settlement.column("outcome").to_pylist() == ["delete"]
    assert queue.browse().column("_message_id").to_pylist() == [third]


def test_messages_whose_rows_are_too_many_together_are_settled_one_after_the_other(store, queue):
    """The queue has room for two, and a batch gives eight."""
    results = store.create_queue("results", RESULTS, max_size=2)
    queue.load(orders(8))
    found = []
    handler = batch_handler(lambda batch: batch.select(["number"]))
    with ConsumerPool(store, "orders", handler, output="results", batch=8, tasks=()) as pool:
        while len(found) < 8:
            fired = results.fire(2, timeout=60)
            found += numbers_of(fired.messages)
            results.delete(fired)
        pool.drain()
    assert sorted(found) == list(range(8))
    assert queue.failures().num_rows == 0


def test_what_was_settled_before_the_queue_was_full_counts_once(store, queue, monkeypatch, caplog):
    """The queue has room for a part of a batch; the rest waits, and is put back."""
    monkeypatch.setattr(pool_output, "ROOM_SECONDS", 0.2)
    results = store.create_queue("results", RESULTS, max_size=30)
    queue.load(orders(100))
    handler = batch_handler(lambda batch: batch.select(["number"]))
    with ConsumerPool(
        store, "orders", handler, output="results", batch=20, concurrency=2, tasks=()
    ) as pool:
        until(lambda: "the pool waits for room" in caplog.text)
    there = results.browse().num_rows
    assert 0 < there <= 30
    assert (pool.counts["deleted"], pool.counts.get("lost", 0)) == (there, 0)
    left = numbers_of(queue.fire("all").messages)
    assert sorted([*left, *numbers_of(results.browse())]) == list(range(100))


@pytest.mark.parametrize("why", ["fail", "too_large", "dropped"])
def test_rows_that_the_queue_refuses_fail_their_messages_and_the_pool_goes_on(
    store, queue, why, caplog
):
    settings = {"fail": {"max_size": 2, "overflow": "fail"}, "too_large": {"max_size": 2}}
    results = store.create_queue("results", RESULTS, **settings.get(why, {}))
    if why == "fail":
        results.load([{"number": 1}, {"number": 2}])
    queue.load(orders(3))

    def handle(message):
        number = message["number"]
        if why == "dropped" and number == 0:
            drop(results)
        return [{"number": number}] * 3 if number < 2 else True

    with ConsumerPool(
        store, "orders", handle, output="results", concurrency=1, batch=3, retry=Retry(attempts=1)
    ) as pool:
        assert pool.drain(PATIENCE)
    assert pool.counts == {"deleted": 1, "sidelined": 2}
    ((kind, reason),) = failures(queue)
    error = "NoSuchQueue" if why == "dropped" else "QueueFull"
    assert kind == "exception"
    assert reason.startswith(f"{error}: ")
    assert "'results'" in reason
    assert "their rows cannot be loaded" in caplog.text


def test_columns_that_are_added_meanwhile_are_known(store, queue, results):
    queue.load(orders(4))

    def handle(message):
        if message["number"] == 0:
            results.admin.add_columns(pa.schema([("more", pa.int64())]))
        return {"number": message["number"], "more": 5}

    assert handled(store, handle, concurrency=1, batch=2) == {"deleted": 4}
    assert results.browse().column("more").to_pylist() == [5] * 4


def test_several_queues_share_an_output(store, queue, results):
    make_queue(store, "others").load(orders(20, first=20))
    queue.load(orders(20))

    counts = handled(store, lambda m: {"number": m["number"]}, of=["orders", "others"], batch=3)

    assert counts == {"deleted": 40}
    assert main(results) == list(range(40))


def test_no_transaction_is_open_during_a_call(store, queue, results):
    queue.load(orders(4))
    inside, goes_on = threading.Event(), threading.Event()

    def handle(message):
        inside.set()
        assert goes_on.wait(PATIENCE)
        return {"number": message["number"]}

    with ConsumerPool(store, "orders", handle, output="results", concurrency=1) as pool:
        assert inside.wait(PATIENCE)
        # On SQLite, a transaction that writes would keep this one waiting.
        results.load([{"number": 100}])
        goes_on.set()
        assert pool.drain(PATIENCE)
    assert len(numbers_of(results.browse())) == 5


def test_a_late_call_gives_no_rows(store, queue, results):
    queue.load(orders(2))
    begun, ended = threading.Event(), threading.Event()
    calls = itertools.count()

    def handle(message):
        if message["number"] == 0:
            return {"number": 0, "text": "in time"}
        if next(calls) == 0:
            # It ends while the next call of the message is under way, and still returns a row.
            with suppress(BaseException):
                begun.wait(PATIENCE)
            ended.set()
            return {"number": 1, "text": "late"}
        begun.set()
        ended.wait(PATIENCE)
        return {"number": 1, "text": "in time"}

    # On a busy machine, other calls may be late too, and are tried again.
    retry = Retry(attempts=100, backoff=constant(0))
    handled(store, handle, handler_timeout=0.3, retry=retry, concurrency=2, batch=1)

    rows = results.browse().select(["number", "text"]).to_pylist()
    assert sorted((row["number"], row["text"]) for row in rows) == [(0, "in time"), (1, "in time")]


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"output": "result"}, NoSuchQueue, "did you mean 'results'"),
        ({"output": "results_SIDELINE"}, BadOption, "sideline"),
        ({"output": "empty"}, BadOption, "keeps no messages"),
        ({"output": "results", "browse": True}, BadOption, "browse=True"),
        ({"output": "results", "transactional": True}, BadOption, "within"),
    ],
)
def test_outputs_that_cannot_be_are_refused(store, queue, results, how, error, told):
    store.create_queue("empty", RESULTS, max_size=0)
    with pytest.raises(error, match=told):
        ConsumerPool(store, "orders", lambda *_: True, **how)
