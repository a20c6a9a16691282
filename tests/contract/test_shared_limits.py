"""Limits with a name, which queues share: their rate, and their messages in flight."""

import json
import time
from collections import Counter
from functools import partial

import pytest

from ignis_source.offset import Offset
from queue_core import ConsumerPool, Store, limit
from queue_core.catalog import queue_changes
from queue_core.catalog.tables import shared_limits
from queue_core.catalog.tables import token_buckets as rows
from queue_core.errors import BadOption
from queue_core.queue.creating import create
from tests.clocks import jump
from tests.contract.test_why import reasons
from tests.factories import drop, make_filled, make_queue, orders
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import PATIENCE, Caller, all_at_once

pytestmark = pytest.mark.each_catalog

#: A rate that gives no second message during a test.
SLOW = 0.001
SECOND = 1 / 86_400
#: Four messages in flight, and ten at once.
CRM = limit(name="crm", in_flight=4)
RATE = limit(name="crm", per_second=SLOW, window=10 / SLOW)
START = Offset("reader", 0)


@pytest.fixture
def queues(store):
    """Return a function that makes two queues with these limits, with messages."""

    def make(one, other=None, **settings):
        made = [
            make_queue(store, name, shards=2, limits=limits, **settings)
            for name, limits in (("a", one), ("b", other or one))
        ]
        for queue in made:
            queue.load(orders(30))
        return made

    return make


def ask(query, start):
    return query.next(start, None, None)


def only_when_woken(monkeypatch):
    """Let those who wait not look again by themselves."""
    monkeypatch.setattr("queue_core.selection.fired.IN_FLIGHT_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr("queue_core.waiting.fire.SETTINGS_SECONDS", 10 * PATIENCE)


def in_flight(store):
    found = store.view("queues").to_pylist()
    return {row["queue"]: row["in_flight"] for row in found}


def test_two_queues_spend_the_tokens_of_one_bucket(store, queues):
    a, b = queues(RATE)

    assert len(a.fire(7)) == 7
    assert len(b.fire("all")) == 3
    refused = a.fire("all")
    assert (len(refused), len(b.fire("all"))) == (0, 0)
    assert 0.9 / SLOW < refused.opens_in < 1.3 / SLOW
    jump(store, 2 * SECOND / SLOW)
    assert len(b.fire("all")) == 2
    assert len(a.fire("all")) == 0


@pytest.mark.parametrize("selector", [None, "number >= 0"])
def test_two_queues_have_one_number_in_flight(store, queues, selector):
    a, b = queues(CRM)

    first = a.fire(3, selector=selector)
    assert len(b.fire("all", selector=selector)) == 1
    assert len(a.fire("all", selector=selector)) == 0
    a.sideline(first)
    assert len(b.fire("all", selector=selector)) == 3
    # Limits count only in main.
    assert len(a.fire("all", magazine="sideline")) == 3


@pytest.mark.parametrize("order", ["shard", "global"])
@pytest.mark.parametrize("free", [False, True])
def test_a_firing_of_several_queues_shares_one_room(store, queues, session, order, free):
    _a, _b = queues(limit(name="crm", in_flight=6))
    make_queue(store, "free", shards=2).load(orders(5))
    query = session(queues="a,b,free" if free else "a,b", order=order)

    offset = ask(query, START)
    held = in_flight(store)
    assert len(query.plan(START, offset)) == 6 + 5 * free
    # The same from each shard.
    assert order == "global" or held["a"] == held["b"] == 3
    assert held["a"] + held["b"] == 6
    query.acknowledge(offset)
    after = ask(query, offset)
    assert len(query.plan(offset, after)) == 6


def test_a_queue_keeps_its_own_limit_beside_those_that_it_shares(store, queues, session):
    own = [limit(in_flight=2), limit(name="crm", in_flight=10), limit(name="all", in_flight=20)]
    _, b = queues(own, limit(name="crm", in_flight=10))

    ask(session(queues="a,b"), START)
    held = in_flight(store)
    assert held["a"] == 2
    assert 5 <= held["b"] <= 8
    assert len(b.fire("all")) == 8 - held["b"]


def test_others_have_what_the_own_limit_of_a_queue_leaves_of_a_shared_one(store, queues, session):
    crm = limit(name="crm", in_flight=10)
    queues([limit(in_flight=2), crm], crm)
    # Nothing limits how many messages the firing looks at.
    make_queue(store, "free").load(orders(5))

    ask(session(queues="a,b,free"), START)

    assert in_flight(store) == {"a": 2, "b": 8, "free": 5}


def test_the_limit_that_lasts_longest_says_when_to_look_again(store, queues):
    a, b = queues([limit(in_flight=1), limit(name="crm", per_second=SLOW)])
    assert len(a.fire("all")) == 1

    refused = a.fire("all")
    assert (len(refused), refused.opens_in < 2.0) == (0, True), "a settlement makes room"
    assert b.fire("all").opens_in > 0.9 / SLOW


def test_a_closed_name_leaves_other_queues_open(store, queues, session):
    a, _b = queues(CRM, limit(name="mail", in_flight=3))
    a.fire(4)
    query = session(queues="a,b")

    offset = ask(query, START)
    assert len(query.plan(START, offset)) == 3
    assert in_flight(store) == {"a": 4, "b": 3}


def test_limits_of_values_and_fair_turns_keep_a_shared_one(store, queues):
    of_values = [limit("customer", in_flight=1), CRM]
    a, b = queues(of_values, CRM)
    b.fire(1)
    assert len(a.fire("all")) == 3
    fair = make_filled(store, 10, "fair", fair_by="customer", limits=CRM)
    assert len(fair.fire("all")) == 0
    b.admin.change_settings(limits=limit(name="crm", in_flight=6))
    assert len(fair.fire("all")) == 2


def test_firings_of_many_threads_never_exceed_a_shared_limit(store, queues):
    queues(limit(name="crm", in_flight=5))
    done, most, place = Counter(), [], store.address

    def work(name):
        with Store.open(catalog=place.catalog, storage=place.storage) as own:
            queue = own.queue(name)
            while done[name] < 30:
                firing = queue.fire(3)
                most.append(sum(in_flight(own).values()))
                done[name] += len(firing)
                queue.delete(firing)

    all_at_once(*(partial(work, name) for name in "aabb"))

    assert done == {"a": 30, "b": 30}
    assert max(most) <= 5


@pytest.mark.each_catalog(False)
def test_pools_of_two_queues_keep_one_rate(store, queues):
    queues(limit(name="crm", per_second=100, window=0.1))
    calls = []

    def handler(_):
        calls.append(time.monotonic())
        return True

    began = time.monotonic()
    with ConsumerPool(store, "a", handler) as one, ConsumerPool(store, "b", handler) as other:
        assert one.drain(PATIENCE)
        assert other.drain(PATIENCE)
    assert len(calls) == 60
    for number, at in enumerate(sorted(calls), 1):
        assert number <= 10 + (at - began) * 100 + 0.5


def test_a_settlement_wakes_who_waits_for_another_queue(store, queues, monkeypatch):
    only_when_woken(monkeypatch)
    _a, b = queues(CRM)
    firing = b.fire("all")
    waiting = Caller(lambda: store.queue("a").fire("all", timeout=10 * PATIENCE))
    time.sleep(0.3)
    b.delete(firing)

    assert len(waiting.done()) == 4


def test_a_change_of_one_queue_changes_all_that_share_the_limit(store, queues, monkeypatch):
    only_when_woken(monkeypatch)
    a, b = queues([limit(per_second=1000), CRM], CRM)
    a.fire("all")
    waiting = Caller(lambda: store.queue("b").fire("all", timeout=10 * PATIENCE))
    time.sleep(0.3)
    wider = limit(name="crm", in_flight=7)
    b.admin.change_settings(limits=wider)

    assert len(waiting.done()) == 3
    assert store.queue("a").info.settings.limits == (limit(per_second=1000), wider)
    assert str(wider) in store.view("acts").to_pylist()[-1]["chosen"]
    # One that joins with other values changes them, too.
    c = make_queue(store, "c")
    c.admin.change_settings(limits=CRM)
    assert store.queue("b").info.settings.limits == (CRM,)


def test_changes_of_two_queues_at_once_do_not_wait_for_each_other(store, queues):
    queues(CRM)

    def work(name):
        for number in range(1, 16):
            limits = [limit(name="crm", in_flight=number), limit(name=name, in_flight=1)]
            store.queue(name).admin.change_settings(limits=limits[:: (-1) ** number])

    all_at_once(*(partial(work, name) for name in "ab"))

    found = {each for name in "ab" for each in store.queue(name).info.settings.limits}
    assert {each.name for each in found} == {"crm", "a", "b"}
    assert len(found) == 3
    assert not len(store.admin.fsck())


def test_other_values_of_a_known_name_are_refused(store, queues):
    a, _ = queues(CRM, log="1 day")
    told = "queue 'a' has limit.name='crm', in_flight=4.*ignis set a limits="
    for other in (limit(name="crm", in_flight=5), limit(name="crm", in_flight=4, per_second=1)):
        with pytest.raises(BadOption, match=told):
            make_queue(store, "c", limits=other)
        with pytest.raises(BadOption, match=told):
            store.subscribe("c", to="a", limits=other)
        with pytest.raises(BadOption, match=told):
            a.replay("c", limits=other)
    assert store.queues() == ["a", "b"]
    store.subscribe("c", to="a", limits=CRM)
    store.create_queue("a", a.schema, shards=2, exist_ok=True)


def test_subscriptions_and_clones_share_and_snapshots_do_not(store, queues):
    a, b = queues(CRM, log="1 day")
    reader = store.subscribe("reader", to="a", start="earliest", limits=CRM)
    copy = a.clone("copy")
    assert len(copy.fire(1)) == len(reader.fire(1)) == len(b.fire(1)) == 1
    reader.admin.snapshot("then")
    assert len(a.fire("all")) == 1
    with store.catalog.read() as connection:
        assert len(connection.execute(shared_limits.select()).all()) == 4
    assert not len(store.admin.fsck())


def test_a_dropped_queue_makes_room_and_its_name_is_forgotten(store, queues):
    a, b = queues(CRM)
    a.fire("all")
    a.admin.deactivate()
    assert len(b.fire("all")) == 0
    a.admin.drop()
    assert len(b.fire("all")) == 4
    drop(b)

    with store.catalog.read() as connection:
        assert connection.execute(rows.select()).all() == []
        assert connection.execute(shared_limits.select()).all() == []


def test_a_dropped_queue_brings_no_tokens_back_to_those_that_share_its_limit(store, queues):
    a, b = queues(RATE)
    assert len(a.fire("all")) == 10

    drop(a)

    assert len(b.fire("all")) == 0


@ONLY_POSTGRESQL  # SQLite lets one write at a time
def test_a_drop_beside_the_creation_of_a_queue_brings_no_tokens_back_to_it(store):
    a = make_filled(store, 30, "a", shards=2, limits=RATE)
    assert len(a.fire("all")) == 10
    a.admin.deactivate()

    def creates(connection):
        like = {"shards": 2, "key": None, "settings": a.info.settings, "exist_ok": False}
        queue_changes.create(connection, "c", a.info.schema, **like)
        drops = Caller(a.admin.drop)
        drops.join(0.5)
        return drops

    store.catalog.write(creates).done()

    c = store.queue("c")
    c.load(orders(5))
    assert len(c.fire("all")) == 0


def test_a_queue_that_leaves_a_name_shares_it_no_more(store, queues):
    a, b = queues(CRM)
    a.fire("all")
    a.admin.change_settings(limits=limit(in_flight=4))
    assert len(b.fire("all")) == 4
    assert len(a.fire("all")) == 0
    # The name is free for other values once nobody has it.
    b.admin.change_settings(limits=None)
    make_queue(store, "c", limits=limit(name="crm", in_flight=9))


def test_the_view_and_the_problems_name_all_that_share_it(store, queues):
    a, b = queues(limit(name="crm", in_flight=4, per_second=SLOW, window=10 / SLOW))
    a.fire(3)
    b.fire(1)

    seen = store.view("limits").to_pylist()
    assert [(row["in_flight"], row["tokens"]) for row in seen] == [(4, 6)] * 2
    assert all("name='crm'" in row["limit"] for row in seen)
    (text,) = [each.text for each in reasons(b) if each.kind == "limit"]
    assert "4 messages are in flight" in text
    assert "a (3 in flight), b (1 in flight). ignis why a says who holds its messages." in text


def test_a_bucket_outlives_those_who_fire(store, queues):
    a, _ = queues(RATE)
    a.fire(8)
    place = store.address
    with Store.open(catalog=place.catalog, storage=place.storage) as again:
        assert len(again.queue("b").fire("all")) == 2


def test_a_shared_limit_that_the_table_lacks_is_found(store, queues):
    queues(CRM)
    with store.catalog.engine.begin() as connection:
        connection.execute(shared_limits.delete().where(shared_limits.c.queue_id == 1))
    (found,) = store.admin.fsck().to_pylist()
    assert (found["invariant"], found["queue"]) == ("I27", "a")
    assert "shared_limits" in found["problem"]


def test_a_queue_made_like_another_one_shares_its_limit(store, queues):
    """As the sink makes queues from a template."""
    a, b = queues(CRM)
    like = json.loads(a.info.settings.to_json())
    create(store.catalog, "c", a.schema, 2, None, like, exist_ok=True)
    store.queue("c").load(orders(5))
    b.fire(1)
    assert len(store.queue("c").fire("all")) == 3


def test_a_restored_store_keeps_who_shares_what(store, queues, tmp_path):
    a, _ = queues([CRM, limit(name="all", per_second=SLOW, window=10 / SLOW)])
    a.fire(3)
    store.admin.backup(tmp_path / "saved")
    new = {"catalog": f"sqlite:///{tmp_path}/new/catalog.db", "storage": str(tmp_path / "new")}
    Store.restore(tmp_path / "saved", **new)

    with Store.open(**new, create=False) as restored:
        assert len(restored.queue("b").fire("all")) == 1
        assert not len(restored.admin.fsck())
        restored.queue("b").admin.change_settings(limits=limit(name="crm", in_flight=6))
        assert len(restored.queue("a").fire("all")) == 2
