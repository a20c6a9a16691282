"""Settings hold for every producer as soon as they are changed, also for one that opened before."""

import json

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from sqlalchemy import select

from ignis_sink.load import stage
from ignis_sink.options import SinkOptions
from ignis_sink.output import find_output
from ignis_sink.planning import find_target
from ignis_sink.publishing import in_turn, publish
from queue_core import Store, limit
from queue_core.catalog import seals
from queue_core.catalog.tables import queues
from queue_core.errors import BadOption, QueueFull
from tests.books import leftover_files
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import Caller, until, waits


@pytest.fixture
def other(address):
    """The store as another process has it open."""
    with Store(address) as opened:
        yield opened


def waiting(queue):
    return sorted(numbers_of(queue.peek(100)))


def test_a_policy(store, other):
    queue = make_queue(store, key="customer")
    early = other.queue("orders")
    early.load(orders(1))
    queue.admin.change_settings(policy="latest")
    assert early.load(orders(20, 1)).null_count == 10
    assert len(waiting(queue)) == 10


def test_dedup(store, other):
    queue = make_queue(store)
    early = other.queue("orders")
    queue.admin.change_settings(dedup=["number"])
    assert early.load(orders(5)).null_count == 0
    assert early.load(orders(6)).null_count == 5


@pytest.mark.parametrize(
    "settings",
    [{"dedup": ["number"]}, {"policy": "drop_duplicates"}, {"policy": "merge(last(amount))"}],
)
def test_rules_that_would_leave_all_rows_out_and_hold_no_longer(store, other, settings):
    """Nothing is loaded by them, so that no load meets the present settings."""
    queue = make_queue(store, key="customer", **settings)
    early = other.queue("orders")
    early.load(orders(1))
    queue.admin.change_settings(policy=None, dedup=())
    assert early.load(orders(1)).null_count == 0
    assert waiting(queue) == [0, 0]


@pytest.mark.parametrize(
    "fresh",
    [{"max_size": 3, "overflow": "fail"}, {"max_bytes": 1, "overflow": "fail"}, {"max_size": 0}],
)
def test_bounds(store, other, fresh):
    queue = make_queue(store)
    early = other.queue("orders")
    early.load(orders(1))
    queue.admin.change_settings(**fresh)
    with pytest.raises(QueueFull):
        early.load(orders(3, 1), timeout=0)
    assert waiting(queue) == [0]


def test_a_load_that_waits_follows_a_policy_and_a_wider_bound(store, other):
    queue = make_filled(store, 1, key="customer", max_size=1)
    early = other.queue("orders")
    load = Caller(lambda: early.load(orders(1, 10)))
    waits(store, 1)
    queue.admin.change_settings(max_size=None, policy="latest")

    assert len(load.done()) == 1
    assert waiting(queue) == [10]


def test_sweeps_expiries_and_shovels(store, other):
    queue = make_queue(store, shovel_limit=1)
    early = other.queue("orders")
    queue.load(orders(4))
    queue.sideline(queue.fire("all"))
    queue.admin.change_settings(shovel_limit=3)
    assert early.shovel() == 3
    queue.fire(2)
    queue.admin.change_settings(sweep_after=0.001)
    until(lambda: early.sweep() == 2)
    queue.admin.change_settings(message_expiry=0.001)
    until(lambda: early.admin.expire() == 1)


def test_another_setting_costs_a_second_try_and_nothing_else(store, other):
    queue = make_queue(store)
    early = other.queue("orders")
    queue.admin.change_settings(concurrency=3, sweep_after=77)
    assert len(early.load(orders(5))) == 5
    assert early.info.settings.sweep_after == 77


def test_a_sink_that_has_staged_its_rows(store, other):
    queue = make_queue(store, key="customer")
    early = other.queue("orders")
    options = SinkOptions.of(
        {"catalog": store.address.catalog, "storage": store.address.storage, "queue": "orders"}
    )
    target = find_target(options, from_arrow_schema(queue.schema))
    task = stage(orders(20).to_batches(), target)
    queue.admin.change_settings(policy="latest")

    staged = {"orders": in_turn([task.staged["orders"]], 0, 1)}
    publish(store, [early.info], staged, options, None)
    assert len(waiting(queue)) == 10


def test_a_load_that_decides_again_by_other_settings_leaves_no_file(store, other, in_files):
    queue = make_queue(store, key="customer", policy="latest")
    early = other.queue("orders")
    queue.admin.change_settings(policy="drop_duplicates")
    assert early.load(orders(20)).null_count == 0
    assert leftover_files(store) == set()


def test_a_load_cannot_choose_another_policy_than_the_queues(store):
    queue = make_queue(store, key="customer", policy="latest")
    for policy in ("drop_duplicates", lambda new, queued: None):
        with pytest.raises(BadOption, match="has the policy 'latest', which all loads go through"):
            queue.load(orders(20), policy=policy)
    assert queue.load(orders(20), policy="latest").null_count == 10


def test_a_sink_does_not_load_into_a_sideline(store):
    make_queue(store)
    address = {"catalog": store.address.catalog, "storage": store.address.storage}
    options = SinkOptions.of({**address, "queue": "orders_SIDELINE"})
    with pytest.raises(BadOption, match="is the sideline of queue 'orders'; messages are loaded"):
        find_target(options, from_arrow_schema(orders(0).schema))


def test_neither_a_sink_nor_a_handler_loads_into_a_subscription(store):
    """They are refused before the first batch, whose handler would be called in vain each time."""
    make_queue(store, log="7 days")
    store.subscribe("billing", to="orders")
    address = {"catalog": store.address.catalog, "storage": store.address.storage}
    loading = SinkOptions.of({**address, "queue": "billing"})
    settling = SinkOptions.of({**address, "queue": "orders", "mode": "settle", "output": "billing"})
    with pytest.raises(BadOption, match="'billing' is a subscription"):
        find_target(loading, from_arrow_schema(orders(0).schema))
    with pytest.raises(BadOption, match="'billing' is a subscription"):
        find_output(settling)


@pytest.mark.parametrize(
    ("option", "text"), [({"policy": "drop_duplicates"}, "policy"), ({"dedup": "amount"}, "dedup")]
)
def test_a_sink_cannot_choose_another_policy_or_dedup_than_the_queues(store, option, text):
    make_queue(store, key="customer", policy="latest", dedup=["number"])
    address = {"catalog": store.address.catalog, "storage": store.address.storage}
    options = SinkOptions.of({**address, "queue": "orders", **option})
    with pytest.raises(BadOption, match=f"{text}=.* which holds for all loads"):
        find_target(options, from_arrow_schema(orders(0).schema))


def test_a_sink_may_name_the_columns_of_dedup_in_any_order(store):
    queue = make_queue(store, dedup=["number", "customer"])
    address = {"catalog": store.address.catalog, "storage": store.address.storage}
    options = SinkOptions.of({**address, "queue": "orders", "dedup": "customer, number"})
    target = find_target(options, from_arrow_schema(orders(0).schema))
    assert target.spec.name == queue.name


def test_settings_of_a_later_version_stay(store):
    """An older process may change settings of a queue that a newer one has made."""
    crm = limit(name="crm", in_flight=4)
    queue = make_queue(store, limits=crm, log="7 days")
    made = [queue, make_queue(store, "other", limits=crm), store.subscribe("reader", to="orders")]

    def add(connection):
        for each in made:
            settings = json.dumps(json.loads(each.info.settings.to_json()) | {"later": [1]})
            seals.change(connection, queues, queues.c.id == each.info.id, settings=settings)

    store.catalog.write(add)
    queue.admin.change_settings(limits=limit(name="crm", in_flight=5), attributes=["amount"])
    queue.admin.change_settings(concurrency=3)

    with store.catalog.read() as connection:
        found = connection.execute(select(queues.c.name, queues.c.settings)).all()
    stored = {row.name: json.loads(row.settings) for row in found}
    assert [stored[each.name]["later"] for each in made] == [[1]] * 3
    assert (stored["orders"]["concurrency"], stored["other"]["limits"]) == (
        3,
        "limit(name='crm', in_flight=5)",
    )
    assert stored["reader"]["attributes"] == ["amount"]
    assert len(queue.load(orders(5))) == 5
    assert store.admin.fsck().to_pylist() == []
