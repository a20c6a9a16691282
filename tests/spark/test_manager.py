"""The queue manager: a query for each queue that has a handler, in step with the catalog."""

import re
import threading
import time

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F

from pyspark_ignis import IgnisManager, consume
from queue_core import Store
from queue_core.catalog.identity import clock
from queue_core.errors import BadName, BadOption, NoSuchQueue, NoSuchStore
from tests.clocks import jump
from tests.dump import age
from tests.factories import make_queue, orders
from tests.spark.rig import PATIENCE, counts, wait_until


def approve(order):
    return True


def refuse(order):
    raise ValueError(f"no {order['number']}")


@pytest.fixture
def manage(rig):
    """Managers of the test's store; they end with the test."""
    made = []

    def manage(handlers, **how):
        manager = IgnisManager(
            rig.spark,
            handlers=handlers,
            **{"path": rig.path, "checkpoints": rig.folder / "checkpoints", "tasks": ()} | how,
        )
        made.append(manager)
        return manager

    yield manage
    for manager in made:
        manager.stop(grace=0)


def statuses(manager):
    return {queue: state.status for queue, state in manager.state().items()}


def deleted(queue):
    return counts(queue, "deleted")[0]


def test_each_queue_with_a_handler_gets_a_query(rig, manage):
    one, other, third = (rig.orders(20, name) for name in ("one", "other", "third"))

    with manage(
        {"one": approve, "other": {"handler": F.col("number") >= 100, "max_messages": 5}}
    ) as manager:
        manager.start()
        wait_until(lambda: deleted(one) == 20 and counts(other, "sidelined")[0] == 20)
        assert {state.starts for state in manager.state().values()} == {1}
        assert statuses(manager) == {"one": "running", "other": "running"}
        assert {query.name for query in rig.spark.streams.active} == {"ignis:one", "ignis:other"}

    assert statuses(manager) == {"one": "stopped", "other": "stopped"}
    assert rig.spark.streams.active == []
    assert counts(third, "fired") == [0]
    assert sorted(path.name for path in (rig.folder / "checkpoints").iterdir()) == ["one", "other"]


def test_managers_of_two_stores_in_one_session_have_queues_of_one_name(rig, manage):
    here = rig.orders(5)
    with Store.open(rig.folder / "other") as store:
        there = make_queue(store)
        there.load(orders(7))
        one = manage({"orders": approve})
        other = manage(
            {"orders": approve}, path=rig.folder / "other", checkpoints=rig.folder / "others"
        )
        with one, other:
            wait_until(lambda: (deleted(here), deleted(there)) == (5, 7))
            names = sorted(query.name for query in rig.spark.streams.active)
            assert names[0] == "ignis:orders"
            assert re.fullmatch("ignis:orders [0-9a-f]{8}", names[1])


def test_a_signal_stops_a_manager_that_is_being_started(rig, manage, monkeypatch):
    """As one does whose handler stops what the program has."""
    rig.orders(1)
    manager = manage({"orders": approve})
    refresh = manager.refresh

    def interrupted():
        refresh()
        manager.stop(grace=0)

    with monkeypatch.context() as patched:
        patched.setattr(manager, "refresh", interrupted)
        manager.start()
    assert statuses(manager) == {"orders": "stopped"}
    assert rig.spark.streams.active == []
    assert "ignis-refresh" not in {each.name for each in threading.enumerate()}


#: The threads of a manager.
THREADS = {"ignis-refresh", "ignis-side-tasks"}


def test_a_signal_stops_a_manager_while_it_starts_its_threads(rig, manage, monkeypatch):
    """When its start returns, all of them have ended, also those that it started after that."""
    rig.orders(1)
    manager = manage({"orders": approve})
    start, made = threading.Thread.start, []

    def interrupted(thread):
        if thread.name in THREADS:
            made.append(thread)
            if len(made) == 1:
                manager.stop(grace=0)
            run = thread.run
            thread.run = lambda: (time.sleep(0.3), run())
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(manager, "refresh", lambda: None)
        patched.setattr(threading.Thread, "start", interrupted)
        manager.start()
    assert {each.name for each in made} == THREADS
    assert not any(each.is_alive() for each in made)
    assert statuses(manager) == {"orders": "stopped"}


def test_a_signal_stops_a_manager_that_is_starting_a_query(rig, manage, monkeypatch):
    rig.orders(1)

    def interrupted(*given, **how):
        manager.stop(grace=0)
        return consume(*given, **how)

    with manage({}) as manager:
        monkeypatch.setattr("pyspark_ignis.manager.consume", interrupted)
        manager.add_handler("orders", approve)
        assert statuses(manager) == {"orders": "stopped"}
        assert rig.spark.streams.active == []


def test_a_stop_by_another_thread_waits_for_a_start(rig, manage, monkeypatch):
    rig.orders(1)
    manager = manage({"orders": approve})
    refresh, start, made = manager.refresh, threading.Thread.start, []
    stopping = threading.Thread(target=manager.stop, kwargs={"grace": 0})

    def slow():
        start(stopping)
        # Until it waits too.
        time.sleep(0.3)
        refresh()

    def noted(thread):
        if thread.name in THREADS:
            made.append(thread)
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(manager, "refresh", slow)
        patched.setattr(threading.Thread, "start", noted)
        manager.start()
        stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert {each.name for each in made} == THREADS
    assert not any(each.is_alive() for each in made)
    assert statuses(manager) == {"orders": "stopped"}
    assert rig.spark.streams.active == []


def test_a_queue_is_discovered_by_itself(rig, manage):
    with manage({"orders": approve}, refresh_interval=0.1, first_refresh=0.1) as manager:
        assert statuses(manager) == {"orders": "absent"}
        queue = rig.orders(10)

        wait_until(lambda: deleted(queue) == 10)
        assert statuses(manager) == {"orders": "running"}


class Particular:
    """Knows one number, and fails with others in a way that is ignored."""

    def handle(self, message):
        return {1: True}[message["number"]]

    def ignorable_exceptions(self):
        return [KeyError]


def test_a_handler_that_is_refused_is_not_started_again(rig, manage):
    with manage({"orders": lambda order: None}) as manager:
        queue = rig.orders(10)
        manager.refresh()
        wait_until(lambda: manager.state()["orders"].status == "failed")

        for _ in range(3):
            manager.refresh()

        state = manager.state()["orders"]
        assert (state.status, state.starts) == ("failed", 1)
        assert "returned None instead of a decision" in str(state.error)
        assert counts(queue, "sidelined") == [1]


def test_handlers_come_and_go_while_the_manager_runs(rig, manage):
    with manage({}) as manager:
        queue = manager.create_queue(
            "late", pa.schema([("number", pa.int64())]), handler=Particular(), shards=1
        )
        assert statuses(manager) == {"late": "running"}
        queue.load([{"number": 0}, {"number": 1}])
        wait_until(lambda: deleted(queue) == 2)
        with pytest.raises(BadOption, match="queue 'late' has a handler already"):
            manager.add_handler("late", approve)

        manager.remove_handler("late")
        assert statuses(manager) == {}
        assert rig.spark.streams.active == []
        queue.load([{"number": 2}])
        with pytest.raises(BadOption, match="queue 'lat' has no handler"):
            manager.remove_handler("lat")

        # The next handler continues with the checkpoint.
        manager.add_handler("late", {"handler": refuse, "ignorable": KeyError})
        manager.add_handler("absent", approve)
        wait_until(lambda: counts(queue, "sidelined") == [1])
        assert statuses(manager) == {"late": "running", "absent": "absent"}
    assert deleted(Store.open(rig.path).queue("late")) == 2


def test_a_bad_handler_creates_no_queue(rig, manage):
    manager = manage({"orders": approve})
    schema = pa.schema([("number", pa.int64())])
    for name, handler, told in (
        ("orders", approve, "has a handler already"),
        ("late", {"max_messages": 5}, "give a handler"),
        ("late", {"handler": approve, "path": "/"}, "remove 'path'"),
    ):
        with pytest.raises(BadOption, match=told):
            manager.create_queue(name, schema, handler=handler)
    assert rig.store.queues() == []


@pytest.mark.nightly
def test_nothing_is_discovered_before_its_time_unless_asked(rig, manage):
    with manage({"orders": approve}) as manager:
        queue = rig.orders(10)
        assert statuses(manager) == {"orders": "absent"}

        manager.refresh()

        assert statuses(manager) == {"orders": "running"}
        wait_until(lambda: deleted(queue) == 10)


def test_a_query_that_fails_does_not_end_the_others_and_is_started_again(rig, manage):
    ill, well = rig.orders(10, "ill"), rig.orders(10, "well")
    broken = {"handler": F.raise_error(F.lit("no such price")).isNull()}

    with manage({"ill": broken, "well": approve}) as manager:
        wait_until(lambda: statuses(manager)["ill"] == "failed")
        wait_until(lambda: deleted(well) == 10)
        failed = manager.state()["ill"]
        assert "no such price" in str(failed.error)
        # The first line of the error.
        assert re.search(r"ill: failed \(.+\), well: running", repr(manager))

        manager.refresh()

        assert manager.state()["ill"].starts == 2
        assert manager.state()["well"].starts == 1
        assert manager.state()["ill"].error is not None
    assert counts(ill, "deleted", "sidelined") == [0, 0]


@pytest.mark.nightly
def test_a_query_that_cannot_be_started_is_shown_and_tried_again(rig, manage):
    make_queue(rig.store, "well")
    make_queue(rig.store)
    with manage({"orders": {"handler": approve, "columns": ["wat"]}, "well": approve}) as manager:
        assert statuses(manager) == {"orders": "failed", "well": "running"}
        assert "'wat'" in repr(manager)

        rig.store.queue("orders").admin.add_columns(pa.schema([("wat", pa.string())]))
        manager.refresh()

        assert statuses(manager) == {"orders": "running", "well": "running"}


@pytest.mark.nightly
def test_a_query_that_ends_as_its_trigger_says_is_started_at_the_next_refresh(rig, manage):
    queue = rig.orders(5)
    with manage({"orders": {"handler": approve, "trigger": {"availableNow": True}}}) as manager:
        wait_until(lambda: statuses(manager)["orders"] == "ended")
        assert deleted(queue) == 5
        queue.load(orders(5, 5))

        manager.refresh()

        wait_until(lambda: deleted(queue) == 10)


def test_a_deactivated_queue_loses_its_query(rig, manage):
    queue, other = rig.orders(5), rig.orders(5, "other")
    with manage({"orders": approve, "other": approve}) as manager:
        wait_until(lambda: deleted(queue) == 5)

        manager.deactivate("orders")

        assert statuses(manager) == {"orders": "deactivated", "other": "running"}
        assert [query.name for query in rig.spark.streams.active] == ["ignis:other"]
        assert queue.refresh().info.deactivated_at is not None
        wait_until(lambda: deleted(other) == 5)


def test_a_manager_starts_while_the_clock_is_in_doubt_and_ends_no_queue(rig, manage):
    plain = rig.orders(5, "plain")
    ending = rig.orders(5, "ending", queue_expiry=2 * 24 * 3600.0)
    rig.store.catalog.write(clock.look)
    jump(rig.store, 3)
    with manage({"plain": approve, "ending": approve}) as manager:
        wait_until(lambda: deleted(plain) == deleted(ending) == 5)
        manager.refresh()
        assert statuses(manager) == {"plain": "running", "ending": "running"}


@pytest.mark.nightly
def test_a_queue_that_others_have_deactivated_or_that_has_expired_loses_its_query(rig, manage):
    given_up = rig.orders(5, "given_up")
    expired = rig.orders(5, "expired", message_expiry=60.0, queue_expiry=60.0)
    with manage({"given_up": approve, "expired": approve}) as manager:
        wait_until(lambda: deleted(expired) == 5)
        given_up.admin.deactivate()
        age(rig.store, 61)

        manager.refresh()

        assert statuses(manager) == {"given_up": "deactivated", "expired": "deactivated"}
        assert rig.spark.streams.active == []


@pytest.mark.nightly
def test_a_query_whose_queue_has_grown_is_started_again_and_sees_the_new_column(rig, manage):
    queue = rig.orders(1)
    with manage({"orders": lambda order: "note" in order}) as manager:
        wait_until(lambda: counts(queue, "sidelined") == [1])
        queue.admin.add_columns(pa.schema([("note", pa.string())]))
        manager.refresh()
        queue.load([{"number": 1, "note": "new"}])

        wait_until(lambda: deleted(queue) == 1)
        assert manager.state()["orders"].starts == 2


@pytest.mark.nightly
def test_the_side_tasks_of_all_queues_are_run(rig, manage):
    """Also of queues without a handler: others sideline messages, and the manager shovels them."""
    rig.orders(10, retry=None, shovel_interval=0.2)
    publish_only = rig.orders(3, "other", retry=None, shovel_interval=0.2)
    publish_only.sideline(publish_only.fire("all"))

    with manage({"orders": refuse}, tasks=("shovel",)) as manager:
        wait_until(lambda: counts(publish_only, "shovelled", magazine="sideline") == [3])
        wait_until(lambda: manager.stats()["orders"].shovelled >= 20)

    assert manager.stats()["orders"].published == 10


@pytest.mark.nightly
def test_consumers_are_counted_in_the_settings_and_within_their_bounds(rig, manage):
    queue = rig.orders(0, concurrency=4)
    manager = manage({"orders": approve})

    assert manager.increase_consumers("orders", 5) == 9
    assert manager.decrease_consumers("orders") == 8
    assert manager.increase_consumers("orders", 1000) == 100
    assert manager.decrease_consumers("orders", 1000) == 0
    assert queue.refresh().info.settings.concurrency == 0
    assert rig.spark.streams.active == []
    with pytest.raises(NoSuchQueue, match="did you mean 'orders'"):
        manager.increase_consumers("order")
    with pytest.raises(BadOption, match="by='5'"):
        manager.increase_consumers("orders", "5")


def test_a_change_of_concurrency_reaches_the_running_query(rig, manage):
    queue = make_queue(rig.store, shards=8, key="number", concurrency=2)
    noted = rig.folder / "noted"
    noted.touch()

    def note(order):
        with noted.open("a") as file:
            file.write(f"{TaskContext.get().partitionId()}\n")
        return True

    # At once, and not only after a while.
    with manage({"orders": {"handler": note, "refreshInterval": 0}}) as manager:
        for concurrency in (2, 5, 1):
            now = queue.refresh().info.settings.concurrency
            manager.increase_consumers("orders", concurrency - now)
            loaded = deleted(queue) + 40
            noted.write_text("")
            queue.load(orders(40))
            wait_until(lambda loaded=loaded: deleted(queue) == loaded)
            assert set(noted.read_text().split()) == set(map(str, range(concurrency)))

        assert manager.state()["orders"].starts == 1


@pytest.mark.nightly
def test_a_queue_without_consumers_is_paused(rig, manage):
    queue, other = make_queue(rig.store), make_queue(rig.store, "other")
    at_once = {"handler": approve, "refreshInterval": 0}
    with manage({"orders": at_once, "other": at_once}) as manager:
        manager.decrease_consumers("orders", 1000)
        assert statuses(manager) == {"orders": "paused", "other": "running"}
        queue.load(orders(10))
        other.load(orders(10))
        wait_until(lambda: deleted(other) == 10)
        assert counts(queue, "fired", "waiting") == [0, 10]

        manager.increase_consumers("orders")

        assert statuses(manager) == {"orders": "running", "other": "running"}
        wait_until(lambda: deleted(queue) == 10)
        assert manager.state()["orders"].starts == 1


@pytest.mark.nightly
def test_the_shovel_is_scheduled_in_the_settings(rig, manage):
    queue = rig.orders(0)
    manager = manage({})

    for interval, concurrency in ((60, 8), (None, None)):
        manager.schedule_shovel("orders", interval, concurrency)
        settings = queue.refresh().info.settings
        assert (settings.shovel_interval, settings.shovel_concurrency) == (interval, 8)
    with pytest.raises(BadOption, match="shovel_concurrency=51"):
        manager.schedule_shovel("orders", 60, concurrency=51)


@pytest.mark.nightly
def test_verbs_can_be_called_and_the_statistics_count_them(rig, manage):
    queue = rig.orders(10)
    queue.delete(queue.fire(2))
    queue.sideline(queue.fire(3))
    queue.fire(1)
    manager = manage({})

    assert manager.sweep("orders") == 0
    assert manager.sweep("orders", older_than=0) == 1
    assert manager.shovel("orders", limit=2, selector="number < 4") == 2

    tally = manager.stats()["orders"]
    assert (tally.published, tally.consumed, tally.sidelined) == (10, 2, 4)
    assert (tally.shovelled, tally.unconsumed) == (2, 6)


def test_messages_that_went_to_another_queue_stay_published_and_did_not_move_back(rig, manage):
    queue = rig.orders(3)
    make_queue(rig.store, "other")
    queue.sideline(queue.fire("all"))
    assert queue.shovel(to="other") == 3

    stats = manage({}).stats()

    assert (stats["orders"].published, stats["orders"].shovelled) == (3, 0)
    assert (stats["other"].published, stats["other"].unconsumed) == (3, 3)


def test_a_manager_continues_where_an_earlier_one_was_stopped(rig, manage):
    """Each message is handled once: a stop waits for the micro-batches that are being handled."""
    queue = make_queue(rig.store)
    seen = rig.folder / "seen"
    seen.touch()

    def note(order):
        with seen.open("a") as file:
            file.write(f"{order['number']}\n")
        return True

    manager = manage({"orders": {"handler": note, "max_messages": 50}})
    for life in range(2):
        manager.start()
        queue.load(orders(200, 200 * life))
        wait_until(lambda at=200 * life: deleted(queue) > at)
        manager.stop(grace=60)
        manager.stop()
    manager.start()
    wait_until(lambda: deleted(queue) == 400)

    handled = sorted(map(int, seen.read_text().split()))
    assert handled == list(range(400))


def test_a_store_of_any_catalog_is_managed(spark, store, tmp_path):
    queue = make_queue(store)
    queue.load(orders(10))
    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    manager = IgnisManager(
        spark, **where, handlers={"orders": approve}, checkpoints=tmp_path / "checkpoints"
    )

    with manager:
        wait_until(lambda: deleted(queue) == 10)


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"handlers": {"../orders": approve}}, BadName, "'../orders'"),
        ({"handlers": {"orders": {"columns": []}}}, BadOption, "'handler'"),
        ({"handlers": {"orders": {"handler": approve, "path": "x"}}}, BadOption, "'path'"),
        ({"path": "nowhere"}, NoSuchStore, "nowhere"),
        ({"path": None}, BadOption, "the store has no address"),
        ({"checkpoints": ""}, BadOption, "checkpoints"),
        ({"checkpoints": "/"}, BadOption, "checkpoints is empty"),
        ({"max_messages": 0}, BadOption, "max_messages=0: use a whole number, 1 or more"),
        ({"checkpoints": None}, BadOption, "checkpoints=None is not a folder"),
        ({"refresh_interval": -1}, BadOption, "refresh_interval=-1"),
        ({"tasks": ["shove"]}, BadOption, "did you mean 'shovel'"),
        ({"zookeeper": "no port"}, BadOption, "zookeeper='no port'"),
    ],
)
def test_a_wrong_call_is_refused_by_name(rig, how, error, told):
    given = {"handlers": {"orders": approve}, "path": rig.path, "checkpoints": "here"}
    if how.get("path"):
        how = {"path": rig.folder / how["path"]}

    with pytest.raises(error, match=told):
        IgnisManager(rig.spark, **given | how)

    assert rig.spark.streams.active == []
