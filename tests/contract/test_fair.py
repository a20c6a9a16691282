"""Fair queues: the values of a column take turns, whatever each has waiting."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from sqlalchemy import NullPool, create_engine

from ignis_source.offset import Offset
from queue_core import Store, limit
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.tables import flows
from queue_core.errors import BadOption
from queue_core.segments.reader import read_table
from queue_core.selection import best_scan, by_rank, quotas
from queue_core.upkeep.tasks.compaction import compact
from queue_core.values.model import Magazine
from tests.factories import (
    ORDERS,
    make_batch,
    make_queue,
    make_stager,
    numbers_of,
    orders,
    planned,
    publish,
    publish_once,
)
from tests.statements import heard
from tests.storages import ONLY_SQLITE


@pytest.fixture
def _forgetful(monkeypatch):
    """Each firing forgets the values that it has passed."""
    monkeypatch.setattr("queue_core.catalog.slices.flows.FORGETS", 2)
    monkeypatch.setattr("queue_core.catalog.slices.flows.KEPT", 0)


def of(customer, count, first=0):
    """Orders of one customer."""
    table = orders(count, first)
    return table.set_column(1, ORDERS.field("customer"), pa.array([customer] * count, pa.string()))


def customers(messages):
    """How many messages each customer has."""
    return Counter(messages.column("customer").to_pylist())


def fire(queue, count, **options):
    """Fire some messages, and return how many each customer has."""
    return dict(customers(queue.fire(count, **options).messages))


def numbers(messages, customer):
    """The orders of a customer, in their order."""
    rows = messages.select(["number", "customer"]).to_pylist()
    return [row["number"] for row in rows if row["customer"] == customer]


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("key", [None, "customer", "number"])
def test_all_values_take_turns(store, shards, key):
    queue = make_queue(store, shards=shards, key=key, fair_by="customer")
    queue.load(of("big", 3000))
    queue.load(pa.concat_tables([of(f"small-{n}", 10) for n in range(9)]))

    first, then = fire(queue, 50), fire(queue, 60)

    # Messages that are in random shards may come a few turns early or late.
    slack = 3 if key == "number" else 0
    assert all(abs(count - 5) <= slack for count in first.values())
    assert all(first[f"small-{n}"] + then[f"small-{n}"] >= 10 - slack for n in range(9))


@pytest.mark.parametrize("together", [True, False])
def test_small_values_are_fired_first_whether_loaded_together_or_not(store, together):
    queue = make_queue(store, shards=2, key="customer", fair_by="customer")
    parts = [of("big", 5000), *(of(f"small-{n}", 10) for n in range(20))]
    for table in [pa.concat_tables(parts)] if together else parts:
        queue.load(table)

    fired = fire(queue, 220)

    assert fired.pop("big") <= 20
    assert fired == {f"small-{n}": 10 for n in range(20)}


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_late_value_is_fired_next_and_has_no_credit(store, comes_back):
    queue = make_queue(store, shards=3, key="customer", fair_by="customer")
    queue.load(of("big", 2000))
    firing = queue.fire(1000)
    if comes_back:
        queue.reload(firing)

    queue.load(of("late", 500))

    assert fire(queue, 2)["late"] >= 1
    assert abs(fire(queue, 100)["late"] - 50) <= 1


def test_a_firing_that_comes_back_keeps_the_order_of_values_that_load_later(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(pa.concat_tables([of("a", 100), of("b", 100)]))
    first, second = queue.fire(60), queue.fire(140)
    queue.reload(first)
    queue.load(pa.concat_tables([of("a", 20, 100), of("b", 20, 100)]))
    queue.reload(second)
    queue.load(pa.concat_tables([of("a", 20, 120), of("b", 20, 120)]))

    messages = pa.concat_tables([queue.fire(20).messages for _ in range(14)])

    assert numbers(messages, "a") == numbers(messages, "b") == list(range(140))


def test_a_new_value_has_its_turn_with_the_first_message_that_comes_back(store):
    queue = make_queue(store, fair_by="customer")
    for first in (0, 100):
        queue.load(of("a", 100, first))
    queue.reload(queue.fire("all"))
    queue.load(of("new", 10))

    assert fire(queue, 20) == {"a": 10, "new": 10}


@pytest.mark.usefixtures("_forgetful")
def test_a_firing_that_comes_back_keeps_the_order_of_values_that_were_forgotten(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(pa.concat_tables([of("a", 20), of("b", 20)]))
    first, second = queue.fire(20), queue.fire(20)
    queue.load(of("c", 2))
    queue.fire(2)
    queue.delete(second)
    queue.reload(first)
    queue.load(of("b", 5, 20))

    messages = pa.concat_tables([queue.fire(5).messages for _ in range(5)])

    assert numbers(messages, "b") == [*range(10), *range(20, 25)]


@pytest.mark.usefixtures("_forgetful")
def test_lanes_with_nothing_waiting_are_forgotten(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(orders(100, customers=50))

    queue.delete(queue.fire("all"))
    queue.load(of("last", 3))
    queue.fire("all")

    with store.catalog.read() as connection:
        assert len(connection.execute(flows.select()).all()) <= 3


def test_values_that_load_alone_have_no_more_turns(store):
    queue = make_queue(store, shards=2, fair_by="customer")
    for number in range(60):
        queue.load(of("often", 1, number))
    queue.load(of("once", 20))
    assert fire(queue, 40) == {"often": 20, "once": 20}


def test_weights_give_more_messages_in_each_turn(store):
    weights = {"gold": 3, "slow": 0.5}
    queue = make_queue(store, shards=2, fair_by="customer", fair_weights=weights)
    for name in ("gold", "plain", "slow"):
        queue.load(of(name, 300))

    fired = fire(queue, 90)

    assert abs(fired["gold"] - 60) <= 2
    assert abs(fired["plain"] - 20) <= 2
    assert abs(fired["slow"] - 10) <= 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.bool_(), pa.string()])
def test_columns_of_these_types_and_nulls_can_take_turns(store, kind):
    schema = pa.schema([("tenant", kind)])
    few = {pa.int64(): 1, pa.bool_(): True, pa.string(): "a"}[kind]
    queue = make_queue(store, schema=schema, fair_by="tenant", fair_weights={few: 2})
    queue.load(pa.table({"tenant": pa.array([few] * 100 + [None] * 100, kind)}))
    messages = queue.fire(30).messages
    assert Counter(messages.column("tenant").to_pylist()) == {few: 20, None: 10}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_value_keeps_its_order_in_each_shard_over_many_loads(store, shards):
    queue = make_queue(store, shards=shards, key="customer", fair_by="customer")
    names, loaded = [f"customer-{n}" for n in range(7)], Counter()
    seen = {name: [] for name in names}
    for turn in range(12):
        parts = []
        for at, name in enumerate(names):
            count = (turn * 7 + at * 5) % 11 + (40 if at == 0 else 0)
            parts.append(of(name, count, loaded[name]))
            loaded[name] += count
        queue.load(pa.concat_tables(parts))
        firing = queue.fire(45)
        for name in names:
            seen[name] += numbers(firing.messages, name)
        if turn % 3 == 0:
            queue.reload(firing)
            for name in names:
                count = len(numbers(firing.messages, name))
                del seen[name][len(seen[name]) - count :]
        else:
            queue.delete(firing)
    while len(firing := queue.fire(100)):
        for name in names:
            seen[name] += numbers(firing.messages, name)

    assert seen == {name: list(range(loaded[name])) for name in names}


def test_ids_are_those_of_the_rows(store):
    queue = make_queue(store, shards=4, key="number", fair_by="customer")
    ids = queue.load(orders(1000, customers=7)).to_pylist()
    firing = queue.fire("all")
    assert firing.ids.to_pylist() == [ids[number] for number in numbers_of(firing.messages)]


def test_a_restored_queue_takes_turns_as_before(store, tmp_path):
    queue = make_queue(store, fair_by="customer")
    queue.load(pa.concat_tables([of("big", 100), of("small", 50)]))
    fire(queue, 20)

    store.admin.backup(tmp_path / "backup")
    Store.restore(tmp_path / "backup", tmp_path / "restored")
    with Store.open(tmp_path / "restored") as restored:
        again = restored.queue("orders")
        again.load(of("late", 20))
        fired = fire(again, 30)

    assert all(abs(fired[name] - 10) <= 1 for name in ("big", "small", "late"))


def test_consumers_and_producers_at_once_fire_each_message_once(store):
    queue = make_queue(store, shards=3, key="number", fair_by="customer")
    queue.load(of("big", 500))

    def produce(number):
        own = store.queue("orders")
        for first in range(20):
            own.load(pa.concat_tables([of(f"own-{number}", 3, first), of("shared", 2, first)]))

    def consume(number):
        own, ids = store.queue("orders"), []
        consumer = store.consumer(f"consumer-{number}")
        while len(firing := own.fire(40, consumer=consumer)):
            ids += firing.ids.to_pylist()
            own.delete(firing)
        return ids

    with ThreadPoolExecutor(6) as threads:
        producing = [threads.submit(produce, number) for number in range(3)]
        consuming = [threads.submit(consume, number) for number in range(3)]
        for each in producing:
            each.result()
        ids = [id for each in consuming for id in each.result()]

    ids += consume(3)
    assert len(ids) == len(set(ids)) == 500 + 3 * 20 * 5


def test_several_queues_share_a_firing(store, session):
    fair = make_queue(store, "fair", shards=2, key="customer", fair_by="customer")
    plain = make_queue(store, "plain", shards=2)
    fair.load(pa.concat_tables([of("big", 100), of("small", 10)]))
    plain.load(of("other", 50))
    reader, at = session(queues="fair,plain"), Offset("reader", 0)

    end = reader.next(at, 40, None)

    assert customers(read_table(reader.plan(at, end))) == {"big": 10, "small": 10, "other": 20}
    reader.acknowledge(end)
    while (end := reader.next(at := end, 40, 1)) != at:
        assert 1 <= len(reader.plan(at, end)) <= 2
        reader.acknowledge(end)
    assert not any(len(queue.fire("all")) for queue in (fair, plain))


def test_all_that_one_firing_can_take_is_taken_in_turns(store, monkeypatch):
    for module in (by_rank, quotas):
        monkeypatch.setattr(module, "MAX_SLICES", 4)
    queue = make_queue(store, fair_by="customer")
    for first in range(6):
        queue.load(of("big", 1, first))
    queue.load(of("small", 1))

    assert fire(queue, "all") == {"big": 3, "small": 1}
    assert fire(queue, "all") == {"big": 3}


@pytest.mark.parametrize("most", [None, 30])
@pytest.mark.parametrize("selector", [{}, {"selector": "number >= 0"}])
def test_a_limit_of_a_fair_queue_beside_another_keeps_the_turns(store, session, selector, most):
    fair = make_queue(store, "fair", fair_by="customer", limits=limit(in_flight=4))
    fair.load(of("big", 100))
    fair.load(of("small", 10))
    make_queue(store, "plain").load(of("other", 5))
    reader, at = session(queues="fair,plain", **selector), Offset("reader", 0)

    end = reader.next(at, most, None)

    assert customers(read_table(reader.plan(at, end))) == {"big": 2, "small": 2, "other": 5}


def test_a_fair_queue_whose_messages_may_not_be_fired_leaves_its_turn_to_another(store, session):
    fair = make_queue(store, "fair", key="customer", fair_by="customer", max_deliveries=1)
    plain = make_queue(store, "plain")
    fair.load(of("big", 2))
    fair.reload(fair.fire(2))
    plain.load(of("other", 1))
    reader, at = session(queues="fair,plain"), Offset("reader", 0)

    end = reader.next(at, 1, None)

    assert customers(read_table(reader.plan(at, end))) == {"other": 1}


def test_a_firing_in_the_callers_transaction_takes_turns(store):
    queue = make_queue(store, shards=3, key="customer", fair_by="customer")
    queue.load(pa.concat_tables([of("big", 100), of("small", 10)]))

    engine = create_engine(store.catalog.engine.url, poolclass=NullPool)
    with engine.connect() as connection:
        queue.within(connection).load(of("own", 10))
        first = queue.within(connection).fire(30)
        assert customers(first.messages) == {"big": 10, "small": 10, "own": 10}
        connection.rollback()

    assert fire(queue, 20) == {"big": 10, "small": 10}


@ONLY_SQLITE  # PostgreSQL does not use an index of so few rows
def test_an_index_gives_the_slices_whose_turn_it_is(store):
    queue, seen = make_queue(store, fair_by="customer"), []
    for number in range(20):
        queue.load(of(f"customer-{number % 7}", 1, number))

    def note(connection, cursor, statement, parameters, *_):
        if "rank IS NOT NULL" in statement:
            seen.append((statement, parameters))

    with heard(store.catalog.engine, before_cursor_execute=note):
        queue.fire(10)

    ((statement, parameters),) = seen
    with store.catalog.read() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert "slices_by_rank" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


def test_staged_segments_of_several_tasks_take_turns(store):
    queue = make_queue(store, shards=2, key="customer", fair_by="customer")
    staged = []
    for number in range(3):
        both = pa.concat_tables([of("big", 200, 200 * number), of(f"small-{number}", 5)])
        staged += make_stager(queue).write(both)

    publish(store.catalog, store.storage, queue.info, staged)

    assert fire(queue, 20) == {"big": 5} | {f"small-{n}": 5 for n in range(3)}


def test_a_batch_of_a_query_without_messages_is_loaded(store):
    queue = make_queue(store, fair_by="customer")
    assert publish_once(store.catalog, store.storage, queue.info, [], make_batch([], 0))
    queue.load(of("one", 1))
    assert fire(queue, 2) == {"one": 1}


def test_reloaded_messages_are_fired_again_first(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(pa.concat_tables([of("big", 100), of("small", 20)]))
    firing = queue.fire(10)
    fire(queue, 10)

    queue.reload(firing)

    again = queue.fire(10).messages.column("_message_id")
    assert again == firing.messages.column("_message_id")


def test_shovelled_messages_have_one_turn_together(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(pa.concat_tables([of("failed", 100), of("big", 300)]))
    failing = queue.fire("all", selector="customer = 'failed'")
    queue.sideline(failing, reason="declined")
    queue.load(of("late", 100))

    assert queue.shovel() == 100

    assert fire(queue, 60) == {"failed": 20, "big": 20, "late": 20}


@pytest.mark.parametrize("step", [1, best_scan.FIRST_STEP])
def test_a_selector_chooses_among_those_whose_turn_it_is(store, monkeypatch, step):
    monkeypatch.setattr(best_scan, "FIRST_STEP", step)
    queue = make_queue(store, shards=2, key="customer", fair_by="customer", attributes=["number"])
    queue.load(of("big", 400))
    queue.load(of("small", 40))

    fired = queue.fire(20, selector="number % 2 = 1").messages

    assert customers(fired) == {"big": 10, "small": 10}
    assert numbers(fired, "small") == list(range(1, 20, 2))
    assert len(queue.fire("all", selector="number % 2 = 1")) == 200
    assert len(queue.fire("all")) == 220


def test_a_limit_of_bytes_is_shared_too(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(of("big", 500))
    queue.load(of("small", 200))
    size = queue.fire(100).messages.nbytes

    fired = dict(customers(queue.fire(max_bytes=size // 2).messages))

    assert fired["small"] > 10
    assert abs(fired["big"] - fired["small"]) <= 5
    assert len(queue.fire(max_bytes=1)) == 1
    assert len(queue.fire(2**63, max_bytes=1)) == 1


def test_messages_that_wait_when_it_is_set_come_first(store):
    queue = make_queue(store, shards=2)
    for number in range(20):
        queue.load(of("before", 1, number))

    queue.admin.change_settings(fair_by="customer")
    queue.load(of("big", 100))
    queue.load(of("small", 10))

    assert fire(queue, 15) == {"before": 15}
    assert fire(queue, 15) == {"before": 5, "big": 5, "small": 5}


def test_the_order_of_loading_holds_again_without_it(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(of("big", 100))
    queue.load(of("small", 10))
    queue.admin.change_settings(fair_by=None)
    assert fire(queue, 101) == {"big": 100, "small": 1}


def test_a_query_that_ends_takes_only_what_was_there(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(of("big", 100))
    horizon = Horizon.now(store.catalog, [queue.info.id], Magazine.MAIN)
    queue.load(of("late", 10))
    consumer = store.consumer("reader")

    first, second, third = (planned(store, queue, consumer, 60, horizon=horizon) for _ in range(3))

    assert (first.messages, second.messages) == (60, 40)
    assert third is None


def test_limits_of_the_queue_hold(store):
    queue = make_queue(
        store, fair_by="customer", limits=[limit(in_flight=30), limit("customer", in_flight=4)]
    )
    queue.load(pa.concat_tables([of("big", 100), *(of(f"small-{n}", 6) for n in range(5))]))

    first, then = fire(queue, 20), fire(queue, 20)

    assert sum(first.values()) == 20
    assert max(first.values()) <= 4
    assert len(first) == 6
    assert sum(then.values()) == 4
    assert "big" not in then or first["big"] < 4


def test_compaction_keeps_turns_and_order(store):
    queue = make_queue(store, fair_by="customer")
    for number in range(30):
        for name in ("a", "b", "c"):
            queue.load(of(name, 1, number))
    queue.load(of("late", 10))

    compact(store.catalog, store.storage, queue.info)

    seen = [queue.fire(4).messages for _ in range(25)]
    assert customers(seen[3]) == {"a": 1, "b": 1, "c": 1, "late": 1}
    assert numbers(pa.concat_tables(seen), "b") == list(range(30))


@pytest.mark.parametrize("options", [{"order_by": "amount"}, {"order": "global"}])
def test_a_firing_has_no_other_order(store, options):
    queue = make_queue(store, shards=2, fair_by="customer")
    with pytest.raises(BadOption, match="cannot be combined with fair_by='customer' of queue"):
        queue.fire(**options)


@pytest.mark.parametrize(
    "settings",
    [
        {"fair_by": "nobody"},
        {"fair_by": "amount"},
        {"fair_by": "customer", "priority": "amount"},
        {"fair_by": "customer", "group": "customer"},
        {"fair_by": "customer", "policy": "latest"},
        {"fair_weights": {"a": 2}},
        {"fair_by": "customer", "fair_weights": {"a": 0}},
        {"fair_by": "customer", "fair_weights": "a: 3"},
    ],
)
def test_what_it_cannot_be_combined_with_is_refused(store, settings):
    queue = make_queue(store, key="customer")
    with pytest.raises(BadOption, match="fair_"):
        queue.admin.change_settings(**settings)
    with pytest.raises(BadOption, match="fair_"):
        make_queue(store, "other", key="customer", **settings)
    assert queue.info.settings.fair_by is None
