"""A clock that jumps ahead removes nothing that is young, until a person accepts it."""

import pytest
from sqlalchemy import insert, select, update

from queue_core import Retry, Store, constant
from queue_core.catalog.identity import clock
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.tables import clocks
from queue_core.errors import CatalogUnavailable, QueueFull
from queue_core.selection.request import Demand, FireRequest
from queue_core.upkeep.tasks.expire import retire
from queue_core.upkeep.tasks.purge import purge
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.values.model import Magazine
from queue_core.verbs.fire import fire
from tests.clocks import DAY, jump
from tests.factories import make_filled, orders, with_sidelined

pytestmark = pytest.mark.each_catalog

TWO_DAYS = 2 * 24 * 3600.0
#: A clock that is three days ahead makes all messages expire, wherever they are.
EXPIRES = {"message_expiry": TWO_DAYS, "sideline_expiry": TWO_DAYS}


def boot(store):
    """Let the machine boot again: its stopwatch says nothing about the time before."""
    store.catalog.write(lambda connection: connection.execute(update(clocks).values(host="before")))


def believed(store):
    return store.catalog.write(clock.look) is None


@pytest.fixture
def queue(store, in_files):
    """A queue with files and 900 messages, 100 of them in flight."""
    queue = make_filled(store, 900, queue_expiry=TWO_DAYS, **EXPIRES)
    queue.fire(100)
    return queue


def test_nothing_that_is_young_goes_when_the_clock_jumps(store, queue):
    jump(store, 3)

    for task in (
        queue.admin.expire,
        queue.sweep,
        store.admin.vacuum,
        lambda: retire(store.catalog, queue.info),
        lambda: purge(store.catalog),
    ):
        with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
            task()

    assert queue.browse().num_rows == 900
    assert store.view("shards").column("swept").to_pylist()[0] == 0


def test_nothing_that_is_young_goes_when_the_clock_jumps_in_the_middle(store, queue, monkeypatch):
    """After the look, and before the transaction."""
    look = clock.check

    def look_and_jump(catalog):
        look(catalog)
        jump(store, 3)

    monkeypatch.setattr(clock, "check", look_and_jump)
    for task in (queue.admin.expire, queue.sweep, store.admin.vacuum, lambda: purge(store.catalog)):
        with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
            task()
        jump(store, -3)

    assert queue.browse().num_rows == 900
    assert store.view("shards").column("swept").to_pylist()[0] == 0


def test_no_kept_message_comes_back_from_one_who_lives_when_the_clock_jumps(store, queue):
    assert len(queue.get_and_keep(5)) == 5
    jump(store, 3)

    with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
        queue.reset()

    store.admin.accept_clock()
    assert queue.reset() == 5


def test_no_key_is_forgotten_when_the_clock_jumps_in_the_middle(store, monkeypatch):
    rules = {"key": "number", "dedup": ["number"], "dedup_window": TWO_DAYS}
    queue = make_filled(store, 3, **rules)
    look = clock.check

    def look_and_jump(catalog):
        look(catalog)
        jump(store, 3)

    monkeypatch.setattr(clock, "check", look_and_jump)
    with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
        purge(store.catalog)
    jump(store, -3)
    assert queue.load(orders(3)).null_count == 3


def test_no_queue_retires_when_the_clock_jumps_in_the_middle(store, queue, monkeypatch):
    read = store.catalog.read

    def jump_and_read():
        jump(store, 3)
        return read()

    monkeypatch.setattr(store.catalog, "read", jump_and_read)
    with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
        retire(store.catalog, queue.info)


def test_a_clock_that_is_set_back_is_believed_again(store, queue, address):
    jump(store, 3)
    assert not believed(store)
    # Processes that come later know it.
    with Store(address) as other, pytest.raises(CatalogUnavailable):
        other.queue("orders").admin.expire()

    jump(store, -3)

    assert believed(store)
    assert queue.admin.expire() == 0
    assert len(queue.fire("all")) == 800


def test_a_person_can_accept_the_clock(store, queue):
    jump(store, 3)
    store.admin.accept_clock()

    assert believed(store)
    assert queue.sweep() == 100
    assert queue.admin.expire() == 900


def test_a_clock_that_goes_back_is_no_danger(store, queue):
    jump(store, -30)
    assert queue.admin.expire() == 0
    # From there on, too, it may not jump.
    jump(store, 3)
    assert not believed(store)


def test_a_machine_that_comes_after_the_clock_was_set_back_believes_it(store, queue):
    """The other one is not in doubt, however young its stopwatch is."""
    jump(store, -3)
    other = update(clocks).values(host="before", host_at=0)
    store.catalog.write(lambda connection: connection.execute(other))

    assert believed(store)


def test_no_failed_message_is_dead_by_a_clock_that_has_jumped(store):
    at_once = Retry(attempts=None, backoff=constant(0))
    with_sidelined(store, 3, message_expiry=TWO_DAYS, retry=at_once)
    assert believed(store)
    jump(store, 3)

    ran, _ = Retries(store.catalog, store.storage).run()
    assert ran == []
    assert store.view("queues")["dead"].to_pylist() == [0]

    jump(store, -3)
    ran, _ = Retries(store.catalog, store.storage).run()
    assert [each.moved for each in ran] == [3]


@pytest.mark.parametrize("settings", [{}, {"group": "customer"}], ids=["plain", "grouped"])
def test_a_message_of_a_clock_that_was_ahead_is_shovelled_and_fired_once_it_is_set_back(
    store, settings
):
    queue = make_filled(store, 8, **EXPIRES, **settings)
    jump(store, 1)
    failed, returned = queue.fire(2), queue.fire(2)
    queue.sideline(failed)
    queue.reload(returned)
    jump(store, -1)

    assert queue.shovel() == 2
    assert available_now(store, queue) == 8


def available_now(store, queue):
    """How many messages a query takes with Trigger.AvailableNow: those that are there now."""
    request = FireRequest(
        queue_ids=(queue.info.id,),
        selection=Demand().selection([queue.info]),
        queues=(queue.info,),
        storage=store.storage.uri,
        horizon=Horizon.now(store.catalog, [queue.info.id], Magazine.MAIN),
    )
    taken = 0
    while fire(store.catalog, store.consumer(), request).ticket is not None:
        taken += queue.delete(queue.browse().column("_message_id"))
    return taken


def test_time_that_really_passed_is_believed(store, queue):
    """The machine was on for a week in which nobody opened the store."""
    jump(store, 7)
    passed = update(clocks).values(host_at=clocks.c.host_at - 7 * DAY)
    store.catalog.write(lambda connection: connection.execute(passed))

    assert queue.sweep() == 100
    assert queue.admin.expire() == 900


def test_a_machine_that_has_booted_believes_a_night(store, queue):
    jump(store, 1.4)
    boot(store)

    assert believed(store)


def test_a_machine_that_has_booted_waits_after_a_longer_gap(store, queue, monkeypatch):
    jump(store, 3)
    boot(store)
    with pytest.raises(CatalogUnavailable, match=r"nobody has watched .*another 60 minutes"):
        queue.admin.expire()

    monkeypatch.setattr(clock, "stopwatch", lambda now=clock.stopwatch: now() + DAY // 23)
    jump(store, 1 / 24)

    assert queue.admin.expire() == 800


def test_a_machine_that_comes_while_another_one_waits_does_not_believe_either(
    store, queue, monkeypatch
):
    jump(store, 3)
    boot(store)
    assert not believed(store)
    other = update(clocks).where(clocks.c.host != "before").values(host="other")
    store.catalog.write(lambda connection: connection.execute(other))

    with pytest.raises(CatalogUnavailable, match="nobody has watched"):
        queue.admin.expire()
    monkeypatch.setattr(clock, "stopwatch", lambda now=clock.stopwatch: now() + DAY // 23)
    jump(store, 1 / 24)

    assert queue.admin.expire() == 800


def test_a_jump_that_another_machine_saw_counts(store, queue):
    jump(store, 1)
    assert not believed(store)
    boot(store)
    assert not believed(store)

    jump(store, -1.5)

    assert believed(store)
    # The rows of the catalog are sealed after these jumps.
    assert store.admin.fsck().num_rows == 0


def test_a_jump_that_a_machine_saw_before_it_booted_does_not_count_after_the_clock_was_set_back(
    store, queue, monkeypatch
):
    jump(store, 3)
    assert not believed(store)
    boot(store)
    jump(store, -3)
    assert believed(store)

    # Three days later, the clock gets to that time again.
    monkeypatch.setattr(clock, "stopwatch", lambda now=clock.stopwatch: now() + 3 * DAY)
    jump(store, 3)

    assert believed(store)


def test_a_full_queue_expires_nothing_by_a_clock_that_jumped(store):
    queue = make_filled(store, 5, max_size=5, overflow="fail", **EXPIRES)
    jump(store, 3)

    with pytest.raises(QueueFull, match="is full"):
        queue.load(orders(1))


def test_a_store_of_an_older_format_knows_of_no_time(store, queue):
    store.catalog.write(lambda connection: connection.execute(clocks.delete()))

    assert believed(store)
    with store.catalog.read() as connection:
        assert len(connection.execute(select(clocks)).all()) == 1


def test_machines_that_were_not_seen_for_a_month_are_forgotten(store, queue):
    row = {"host": "old", "catalog_at": 0, "host_at": 0, "steady_at": 0}
    store.catalog.write(lambda connection: connection.execute(insert(clocks).values(row)))

    purge(store.catalog)

    assert believed(store)
    with store.catalog.read() as connection:
        assert "old" not in connection.scalars(select(clocks.c.host)).all()
