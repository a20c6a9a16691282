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
    assert rig.store.queue("jobs").admin.expire() == 1
    assert rig.store.queue("jobs").browse()["number"].to_pylist() == [3]


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
