"""Expire: messages whose time is over are not fired any more, and then removed."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from sqlalchemy import update

from queue_core import Retry, constant
from queue_core.catalog.records import task_log
from queue_core.catalog.tables import segments, slices
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.verbs import expire as module
from queue_core.watching.wording import TOO_OLD
from tests.clocks import make_due
from tests.command_line import refusal
from tests.dump import dump
from tests.factories import aside, load_singly, make_filled, make_queue, numbers_of, orders
from tests.job_steps import run_job

#: Seconds; nothing expires by itself during a test.
EXPIRY = 10_000.0


def age(store, seconds=EXPIRY):
    """Let all messages be *seconds* older."""
    by = int(seconds * 1e6)
    for table in (slices, segments):
        earlier = update(table).values(loaded_at=table.c.loaded_at - by)
        store.catalog.write(lambda connection, earlier=earlier: connection.execute(earlier))


@pytest.fixture
def queue(store):
    return make_queue(store, message_expiry=EXPIRY, sideline_expiry=EXPIRY)


def expired(queue):
    return sum(queue.metadata().column("expired").to_pylist())


def reported(store, queue):
    with store.catalog.read() as connection:
        rows = task_log.read(connection, [queue.info], ["expire"]).to_pylist()
    return [(row["moved"], row["from"], row["to"]) for row in rows]


def test_messages_expire_by_the_settings_of_that_moment(store, queue, monkeypatch):
    """A process of many tasks may have read the queue hours before."""
    queue.load(orders(4))
    age(store)
    stale, read_ages = queue.info, module.read_ages
    queue.admin.change_settings(message_expiry=2 * EXPIRY)
    assert module.expire(store.catalog, store.storage.uri, stale) == 0
    age(store)

    def and_change(*args):
        queue.admin.change_settings(message_expiry=None)
        return read_ages(*args)

    monkeypatch.setattr(module, "read_ages", and_change)
    assert queue.admin.expire() == 0
    assert queue.browse().num_rows == 4


def test_what_is_too_old_is_gone_counted_and_reported_and_its_segment_let_go(store, queue):
    queue.load(orders(4_000))
    before = dump(store)
    assert queue.admin.expire() == 0
    assert dump(store) == before
    age(store)
    queue.load(orders(2, 4_000))

    assert queue.admin.expire() == 4_000
    assert numbers_of(queue.browse()) == [4_000, 4_001]
    assert expired(queue) == 4_000
    assert reported(store, queue) == [(4_000, "main", None)]
    assert len(store.admin.vacuum(grace=0)) == 1


def test_what_is_too_old_is_not_fired_nor_shown_nor_shovelled(store, queue):
    queue.load(orders(4))
    queue.sideline(queue.fire(2))
    age(store)
    queue.load(orders(1, 4))

    assert numbers_of(queue.peek()) == [4]
    assert len(queue.fire("all", magazine="sideline")) == 0
    assert queue.shovel() == 0
    assert numbers_of(queue.fire("all").messages) == [4]
    assert queue.admin.expire() == 4
    assert queue.browse(magazine="sideline").num_rows == 0


def test_by_default_no_message_expires(store):
    """Neither in main nor in the sideline, whatever its age."""
    queue = make_filled(store, 4)
    queue.sideline(queue.fire(2))
    age(store, 1e9)
    before = dump(store)

    assert queue.admin.expire() == 0
    assert dump(store) == before
    assert queue.shovel() == 2
    assert len(queue.fire(9)) == 4


def test_the_sideline_keeps_its_messages_unless_its_own_setting_says_so(store):
    queue = make_filled(store, 4, message_expiry=EXPIRY)
    queue.sideline(queue.fire(2))
    age(store)

    assert queue.admin.expire() == 2
    assert queue.shovel() == queue.shovel(force=True) == 0, "main would remove them"
    assert numbers_of(queue.fire(1, magazine="sideline").messages) == [0]
    assert queue.browse(magazine="sideline").num_rows == 2

    queue.admin.change_settings(message_expiry=None)
    assert queue.shovel() == 1
    assert numbers_of(queue.fire(9).messages) == [1]


def test_what_is_gone_from_the_sideline_is_counted_and_reported(store):
    queue = make_filled(store, 4, sideline_expiry=EXPIRY)
    queue.sideline(queue.fire(2))
    age(store)
    assert queue.admin.expire() == 2
    assert expired(queue) == 2
    assert reported(store, queue) == [(2, "sideline", None)]
    assert numbers_of(queue.fire(9).messages) == [2, 3]


def test_what_is_in_flight_expires_when_it_comes_back(store, queue):
    queue.load(orders(4))
    firing = queue.fire(2)
    age(store)
    assert queue.admin.expire() == 2
    queue.reload(firing.ids[:1])
    assert queue.admin.expire() == 1
    assert queue.delete(firing) == 1


def test_an_expiry_of_ages_never_overflows(store):
    queue = make_filled(store, 2, message_expiry=1e300)
    assert queue.admin.expire() == 0
    assert len(queue.fire("all")) == 2


# --- compacted segments, whose messages are of several ages ---------------------------------------


@pytest.fixture
def aged(store, queue):
    """200 single loads; the first 90 are too old."""
    load_singly(queue, 90)
    age(store)
    load_singly(queue, 110, 90)
    return queue


@pytest.fixture
def mixed(store, aged):
    """One slice of them all, as when it was not known yet that they would expire."""
    aged.admin.change_settings(message_expiry=None, sideline_expiry=None)
    assert aged.admin.compact() == 200
    assert store.view("slices").num_rows == 1
    aged.admin.change_settings(message_expiry=EXPIRY)
    return aged


def test_the_young_are_fired_though_they_are_compacted_with_the_old(store, aged):
    assert aged.admin.compact() == 200
    assert store.view("slices").num_rows == 2
    assert numbers_of(aged.fire("all").messages) == list(range(90, 200))
    assert aged.admin.expire() == 90


def test_of_several_ages_only_the_old_ones_go_and_the_others_in_their_own_time(store, mixed):
    assert mixed.admin.expire() == 90
    assert mixed.admin.expire() == 0
    assert numbers_of(mixed.fire("all").messages) == list(range(90, 200))
    assert expired(mixed) == 90
    mixed.reload(mixed.choose("all").ids)
    age(store)
    assert numbers_of(mixed.peek()) == []


def test_the_young_are_tried_again_though_they_are_compacted_with_the_old(store):
    queue = make_queue(store, retry=Retry(attempts=3, backoff=constant(60)))
    for number in range(200):
        queue.load(orders(1, number))
        if number == 89:
            age(store)
    queue.sideline(queue.fire("all"))
    assert queue.admin.compact() == 200
    assert store.view("slices").num_rows == 1
    queue.admin.change_settings(message_expiry=EXPIRY)
    make_due(store)

    ran, _ = Retries(store.catalog, store.storage).run()
    assert [each.moved for each in ran] == [110]
    assert aside(queue) == list(range(90))
    assert numbers_of(queue.fire("all").messages) == list(range(90, 200))


def test_what_came_back_meanwhile_is_left_to_the_next_time(store, mixed, monkeypatch):
    store.catalog.write(lambda c: c.execute(update(slices).values(loaded_at=2**60)))
    ids = mixed.fire(50).ids
    store.catalog.write(lambda c: c.execute(update(slices).values(loaded_at=0)))
    ages = module.read_ages

    def comes_back(*args):
        found = ages(*args)
        mixed.reload(ids)
        return found

    monkeypatch.setattr(module, "read_ages", comes_back)
    assert mixed.admin.expire() == 40
    monkeypatch.undo()
    assert mixed.admin.expire() == 50
    assert numbers_of(mixed.fire("all").messages) == list(range(90, 200))


def test_what_would_expire_in_main_goes_to_another_queue_where_it_is_new(store):
    queue, other = make_queue(store, message_expiry=EXPIRY), make_queue(store, "other")
    queue.load(orders(3))
    queue.choose("all").sideline()
    age(store)

    assert queue.shovel(force=True) == queue.shovel(force=True, dry_run=True) == 0
    (one, two, three) = queue.choose("all").ids.to_pylist()
    text = f"{one} of queue 'orders' would expire in main: set message_expiry longer or none first"
    with pytest.raises(BadOption, match=text):
        queue.edit(one, {"amount": 1.0})
    assert queue.shovel(to="other", force=True, ids=[one], dry_run=True) == 1
    assert queue.shovel(to="other", force=True, ids=[one]) == 1
    assert numbers_of(other.fire("all").messages) == [0]
    queue.admin.change_settings(message_expiry=None)
    assert queue.choose([two]).requeue() == 1
    queue.edit(three, {"amount": 1.0})
    assert sorted(numbers_of(queue.fire("all").messages)) == [1, 2]


def test_what_would_expire_in_main_by_its_own_time_is_edited_with_a_later_one(store):
    times = [datetime(year, 1, 1, tzinfo=UTC) for year in (2001, 2101)]
    schema = pa.schema([("number", pa.int64()), ("till", pa.timestamp("us", "UTC"))])
    queue = make_queue(store, schema=schema, expires_at="till")
    ids = queue.load([{"number": n, "till": till} for n, till in enumerate([*times, None])])
    queue.choose("all").sideline()

    past, ahead, endless = ids.to_pylist()
    for values in ({"number": 10}, {"till": times[0]}):
        text = f"{past} of queue 'orders' would expire in main: give its column 'till' a later time"
        with pytest.raises(BadOption, match=text):
            queue.edit(past, values)
    with pytest.raises(BadOption, match=f"{ahead} of queue 'orders' would expire"):
        queue.edit(ahead, {"till": times[0]})
    queue.edit(past, {"number": 10, "till": times[1]})
    queue.edit(ahead, {"number": 11})
    queue.edit(endless, {"number": 12})

    assert queue.admin.expire() == 0
    assert sorted(numbers_of(queue.fire("all").messages)) == [10, 11, 12]


@pytest.mark.parametrize(
    ("settings", "gone"),
    [({}, [0]), ({"expires_at": "till"}, [1]), ({"expires_at": ""}, [])],
)
def test_the_expiry_column_of_the_other_queue_counts(store, settings, gone):
    times = [datetime(year, 1, 1, tzinfo=UTC) for year in (2001, 2101)]
    names = ("_expires_at", "till")
    schema = pa.schema([("number", pa.int64()), *((n, pa.timestamp("us", "UTC")) for n in names)])
    queue, other = make_queue(store, schema=schema), make_queue(store, "other", schema, **settings)
    rows = [{"number": n, "_expires_at": times[n], "till": times[1 - n]} for n in (0, 1)]
    queue.load([*rows, {"number": 2}])
    queue.choose("all").sideline()

    job = queue.start_shovel(to="other", force=True)
    run_job(store, job)

    assert numbers_of(queue.browse(magazine="sideline")) == gone
    assert sorted(numbers_of(other.fire("all").messages)) == sorted({0, 1, 2} - {*gone})


def test_the_command_line_says_how_many_messages_would_expire(ignis, store):
    queue = make_queue(store, message_expiry=EXPIRY)
    make_queue(store, "other")
    queue.load(orders(3))
    queue.choose("all").sideline()
    age(store)
    queue.load(orders(1, 3))
    queue.choose("all", magazine="main").sideline()
    ids = queue.choose("all").ids.to_pylist()
    stay = f"messages stay in the sideline, and would expire in orders at once: {TOO_OLD}\n"

    for how in ([], ["--force", "--dry-run"], ["--wait"]):
        assert f"3 {stay}" in ignis("shovel", "orders", *how).stderr
    one = ignis("requeue", "orders", "--id", ids[0], "--yes")
    assert (one.exit_code, one.stdout) == (1, "0 messages of orders requeued\n")
    assert one.stderr == f"ignis: 1 {stay}".replace("messages stay", "message stays")
    rest = ignis("requeue", "orders", "--where", "number > 1", "--yes")
    assert (rest.stdout, rest.exit_code) == ("1 message of orders requeued\n", 0)
    assert "1 message stays" in rest.stderr
    assert "would expire in main" in refusal(ignis("edit", "orders", ids[0], "--set", "amount=1"))
    assert TOO_OLD in ignis("problems").stdout.replace("\n", " ")
    moved = ignis("shovel", "orders", "--to", "other", "--force")
    assert (moved.stdout, moved.stderr) == ("3 messages are in other\n", "")
