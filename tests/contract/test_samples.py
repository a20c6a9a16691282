"""Samples: figures of all queues every ten seconds, which become minutes and hours."""

import json
import time

import pyarrow as pa
import pytest
from sqlalchemy import event, func, insert, select, update

from queue_core import Retry, Settlement, constant
from queue_core.catalog.format import FIGURES, SAMPLES
from queue_core.catalog.record_tables import samples as rows
from queue_core.catalog.records import samples
from queue_core.catalog.records.samples import KEPT_SECONDS
from queue_core.catalog.tables import counters, slices
from queue_core.upkeep.tasks.sample import sample
from queue_core.values.model import INLINE
from queue_core.verbs.quarantine import set_apart
from queue_core.watching.present import FiguresReader
from tests.factories import make_filled, make_queue, orders
from tests.waiting import until

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600
SHOWN = (
    "waiting",
    "in_flight",
    "sidelined",
    "retrying",
    "dead",
    "damaged",
    "oldest_age",
    "longest_wait",
)
RATES = ("loaded_per_s", "returned_per_s", "fired_per_s", "deleted_per_s", "sidelined_per_s")


def seen(store, queue="orders", seconds=10):
    return [row for row in store.view("samples", queue).to_pylist() if row["seconds"] == seconds]


def in_sql(store, name):
    with store.catalog.read() as connection:
        found = connection.exec_driver_sql(f"SELECT * FROM {name} ORDER BY queue")
        return [dict(row) for row in found.mappings()]


def write_rounds(store, times, **values):
    """Write a sample of one queue at each of these times, in seconds."""
    given = {"seconds": 10, "queue_id": store.queue("orders").info.id, "elapsed": 10_000_000}
    found = [given | {"taken_at": int(at * 1e6)} | values for at in times]
    store.catalog.write(lambda connection: connection.execute(insert(rows), found))


def roll_up(store, now):
    store.catalog.write(lambda connection: samples.roll_up(connection, int(now * 1e6)))


def test_the_figures_of_counters_are_those_of_slices(store):
    queue = make_queue(
        store, shards=3, key="customer", retry=Retry(attempts=2, backoff=constant(3600))
    )
    make_queue(store, "empty")
    queue.load(orders(40))
    firing = queue.fire(20)
    queue.delete(firing.ids[:4])
    queue.sideline(firing.ids[4:9])
    queue.reload(firing.ids[9:12])
    thrice = queue.fire(3).ids
    dead = {"_message_id": thrice, "outcome": ["sideline"] * 3, "dead": [True] * 3}
    queue.settle(Settlement.of(pa.table(dead)))
    queue.shovel(2)
    queue.load(orders(7, 40))
    queue.sweep(older_than=0)
    queue.fire(5)
    with store.catalog.read() as connection:
        last = connection.scalar(select(func.max(slices.c.segment_id)))
    assert store.catalog.write(lambda c: set_apart(c, [f"{INLINE}{last}"])) == 7

    found = {row["queue"]: row for row in in_sql(store, FIGURES)}
    for row in store.view("queues").to_pylist():
        assert {name: found[row["queue"]][name] for name in SHOWN[:-2]} == {
            name: row[name] for name in SHOWN[:-2]
        }
    assert found["empty"]["oldest_age"] is None
    assert found["orders"]["waiting"] > 0
    assert found["orders"]["oldest_age"] >= 0


def test_the_oldest_message_is_at_the_head_of_a_shard(store):
    queue = make_queue(store, shards=2)
    assert store.view("queues")["oldest_age"].to_pylist() == [None]
    queue.load(orders(1))
    hour_ago = update(slices).values(loaded_at=slices.c.loaded_at - HOUR * 1_000_000)
    store.catalog.write(lambda connection: connection.execute(hour_ago))
    queue.load(orders(9, 1))

    (age,) = store.view("queues")["oldest_age"].to_pylist()
    assert HOUR <= age < HOUR + 60

    queue.fire("all")
    assert store.view("queues")["oldest_age"].to_pylist() == [None]


def test_a_sample_has_the_figures_and_the_rates_since_the_last_one(store):
    queue = make_filled(store, 10)
    sample(store.catalog)
    firing = queue.fire(6)
    queue.delete(firing.ids[:3])
    queue.sideline(firing.ids[3:4])
    queue.load(orders(5, 10))
    sample(store.catalog)

    first, second = seen(store)
    assert [first[name] for name in RATES] == [None] * 5
    (now,) = store.view("queues").to_pylist()
    for name in ("waiting", "in_flight", "sidelined", "retrying", "dead"):
        assert second[name] == now[name]
    elapsed = (second["taken_at"] - first["taken_at"]).total_seconds()
    assert [second[name] * elapsed for name in RATES] == pytest.approx([5, 0, 6, 3, 1])


def test_a_reader_of_figures_remembers_samples_for_ten_minutes(store):
    """Also if no process has taken one since, so that it tells no pace of former hours."""
    make_queue(store)
    reader = FiguresReader(store.catalog, store.storage)
    write_rounds(store, [store.catalog.now() / 1e6 - 598])

    assert len(reader.read().queues[0].samples) == 1
    until(lambda: reader.read().queues[0].samples == ())


def test_the_views_of_the_database_have_the_same_columns_and_figures(store):
    make_queue(store).load(orders(3))
    for _ in range(2):
        sample(store.catalog)

    table = store.view("samples")
    found = in_sql(store, SAMPLES)
    assert list(found[0]) == table.column_names
    found.sort(key=lambda row: str(row["taken_at"]))
    for row, known in zip(found, seen(store), strict=True):
        assert str(row["taken_at"])[:19] == f"{known['taken_at']:%Y-%m-%d %H:%M:%S}"
        assert [row[name] for name in SHOWN[:5]] == [known[name] for name in SHOWN[:5]]
    (present,) = in_sql(store, FIGURES)
    assert present.keys() == {"queue", *SHOWN}


@pytest.mark.spoiled
def test_a_rate_over_counters_that_fell_is_unknown(store):
    """As after a restore of an older catalog."""
    queue = make_filled(store, 10)
    queue.delete(queue.fire(5))
    sample(store.catalog)
    store.catalog.write(lambda c: c.execute(update(counters).values(deleted=0)))
    sample(store.catalog)

    assert [seen(store)[-1][name] for name in RATES] == [None] * 5


def test_minutes_and_hours_have_the_highest_figures_and_mean_rates(store):
    make_queue(store)
    start = store.catalog.now() // 1_000_000 // HOUR * HOUR - HOUR
    write_rounds(store, [start + 5, start + 15], waiting=3, new_loaded=10, oldest_age=None)
    write_rounds(store, [start + 25], waiting=70, new_loaded=40, oldest_age=2_000_000)
    write_rounds(store, [start + MINUTE + 5], waiting=9, new_loaded=None, elapsed=None)
    roll_up(store, start + 2 * MINUTE)

    first, second = seen(store, seconds=MINUTE)
    assert (first["waiting"], first["oldest_age"], first["loaded_per_s"]) == (70, 2.0, 2.0)
    assert (second["waiting"], second["oldest_age"], second["loaded_per_s"]) == (9, None, None)
    assert seen(store, seconds=HOUR) == []

    roll_up(store, start + HOUR)
    (hour,) = seen(store, seconds=HOUR)
    assert (hour["waiting"], hour["oldest_age"], hour["loaded_per_s"]) == (70, 2.0, 2.0)
    roll_up(store, start + HOUR)
    assert len(seen(store, seconds=HOUR)) == 1


def test_samples_are_bounded_even_if_nobody_took_any_for_a_while(store):
    make_queue(store)
    end = store.catalog.now() / 1e6 // HOUR * HOUR
    write_rounds(store, range(int(end) - 2 * DAY, int(end), 600), waiting=1)
    write_rounds(store, [end + DAY], waiting=1)
    roll_up(store, end)

    with store.catalog.read() as connection:
        query = select(rows.c.seconds, func.count()).group_by(rows.c.seconds)
        found = dict(map(tuple, connection.execute(query)))
    # A sample of the future is one of a clock that was set back.
    assert found == {10: 6, MINUTE: 144, HOUR: 48}
    assert KEPT_SECONDS == {10: HOUR, MINUTE: DAY, HOUR: 30 * DAY}


def test_a_round_sums_up_what_was_over_since_the_last_one(store):
    make_queue(store)
    now = store.catalog.now() // 1_000_000
    write_rounds(store, [now - 2 * HOUR - 5, now - 2 * HOUR], waiting=3)
    write_rounds(store, [now + DAY], waiting=1, seconds=MINUTE)
    sample(store.catalog)
    # A minute of the future is one of a clock that was set back.
    assert {row["waiting"] for row in seen(store, seconds=MINUTE)} == {3}
    assert {row["waiting"] for row in seen(store, seconds=HOUR)} == {3}
    # The next round of the same minute leaves it at that.
    begun = store.catalog.now() // (MINUTE * 1_000_000)
    write_rounds(store, [now - MINUTE], waiting=7)
    sample(store.catalog)
    if begun == store.catalog.now() // (MINUTE * 1_000_000):
        assert 7 not in {row["waiting"] for row in seen(store, seconds=MINUTE)}


def test_a_round_costs_as_many_statements_for_fifty_queues_as_for_one(store):
    executed, counts = [], []
    event.listen(
        store.catalog.engine, "before_cursor_execute", lambda *given: executed.append(given)
    )

    def minute():
        return store.catalog.now() // (MINUTE * 1_000_000)

    for number in (1, 50):
        while len(store.queues()) < number:
            make_queue(store, f"queue-{len(store.queues())}")
        begun = None
        # The first sample of a minute also sums up the one before.
        while begun != minute():
            begun = minute()
            sample(store.catalog)
            executed.clear()
            sample(store.catalog)
            count = len(executed)
        counts.append(count)

    assert counts[0] == counts[1] <= 4


def test_the_command_line_shows_the_latest_figures_and_a_line_of_those_before(ignis, store):
    queue = make_queue(store)
    for _ in range(3):
        sample(store.catalog)
        queue.load(orders(4))
        # Of the samples of one moment, there is one.
        time.sleep(0.01)
    sample(store.catalog)

    told = [json.loads(line) for line in ignis("samples", "--json").stdout.splitlines()]
    assert [row["waiting"] for row in told] == [0, 4, 8, 12]
    shown = ignis("samples", "orders").stdout
    assert "▁▃▆█" in shown
    assert "\t12\t" in shown
    assert ignis("samples", "--each", "1h", "--json").stdout == ""
