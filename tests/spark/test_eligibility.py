"""The next message through Spark: selectors, priorities, holds, groups, and their options."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, Row

from tests.factories import make_queue, orders
from tests.spark.rig import Rig, wait_until

pytestmark = pytest.mark.nightly

ROWS = """
SELECT number, who, priority,
       timestamp_seconds(hold) AS hold, timestamp_seconds(until) AS until
FROM VALUES
    (0, 'a', 1, 0, 9999999999),
    (1, 'a', 9, 0, 9999999999),
    (2, 'b', 5, 0, 9999999999),
    (3, 'b', 7, 9999999999, 9999999999),
    (4, 'c', 8, 0, 1000),
    (5, 'd', 3, NULL, NULL)
AS rows(number, who, priority, hold, until)
"""


def _written(rig: Rig, **options: str) -> DataFrame:
    rows = rig.spark.sql(ROWS).coalesce(1)
    rig.write(rows, "jobs", shards="2", **options)
    return rows


def test_the_sink_sets_what_the_source_goes_by(rig: Rig) -> None:
    _written(rig, priority="priority", groupBy="who", holdUntil="hold", expiresAt="until", ttl="1h")
    settings = rig.store.queue("jobs").info.settings
    assert (settings.priority, settings.group) == ("priority", "who")
    assert (settings.hold_until, settings.expires_at) == ("hold", "until")
    assert settings.message_expiry == 3600.0
    assert rig.store.queue("jobs").info.key == "who"
    # One of a group at a time; what is held or expired is passed over.
    batches = rig.numbers(rig.source("jobs", maxMessagesPerTrigger=2))
    assert [sorted(batch) for batch in batches] == [[2, 5], [0], [1]]
    assert rig.store.queue("jobs").expire() == 1
    assert rig.store.queue("jobs").browse()["number"].to_pylist() == [3]


def test_priorities_and_selectors_go_together(rig: Rig) -> None:
    _written(rig, priority="priority")
    stream = rig.source("jobs", selector="number < 4", maxMessagesPerTrigger=1)
    assert rig.numbers(stream) == [[1], [3], [2], [0]]


def test_values_take_turns_from_the_sink_to_the_source(rig: Rig) -> None:
    who = "if(id < {0}, 'large', concat('small-', id % 4)) AS who"
    rows = f"SELECT id AS number, {who} FROM range({{0}} + 8)"
    rig.write(rig.spark.sql(rows.format(100)).coalesce(1), "jobs", shards="2", fairBy="who")
    rig.write(rig.spark.sql(rows.format(20)).repartition(3), "jobs")

    batches = rig.numbers(rig.source("jobs", maxMessagesPerTrigger=30))

    # Five values have 6 messages each, as long as they have some.
    assert {*range(100, 108), *range(20, 28)} <= set(batches[0])
    assert sorted(n for batch in batches for n in batch) == sorted([*range(108), *range(28)])


def test_a_fallback_reads_the_oldest_when_nothing_matches(rig: Rig) -> None:
    _written(rig, key="who")
    stream = rig.source("jobs", selector="who = 'd'", fallback="any", maxMessagesPerTrigger=1)
    batches = rig.numbers(stream)
    assert batches[0] == [5]
    assert sorted(number for batch in batches for number in batch) == list(range(6))


def test_a_running_query_gets_what_was_held_once_its_time_has_come(rig: Rig) -> None:
    queue = make_queue(rig.store)
    queue.load(orders(1), hold=0.0)
    seen: list[Row] = []
    query = rig.each(rig.source(), lambda batch, _: seen.extend(batch.collect()), trigger={})
    wait_until(lambda: len(seen) == 1, query)
    queue.load(orders(1, first=1), hold=1.0)
    wait_until(lambda: len(seen) == 2, query)
    query.stop()
    late = seen[1]["_fired_at"] - seen[1]["_hold_until"]
    # A second, and what a busy machine takes for a micro-batch.
    assert timedelta(0) <= late < timedelta(seconds=30)


def test_a_queue_that_is_set_otherwise_is_not_written_to(rig: Rig) -> None:
    _written(rig, priority="priority")
    with pytest.raises(Exception, match="priority") as failed:
        _written(rig, priority="number")
    assert "queue 'jobs' has priority = 'priority'" in str(failed.value)
    assert rig.store.queue("jobs").browse().num_rows == 6
