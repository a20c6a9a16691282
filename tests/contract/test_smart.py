"""Herzner's examples of a smart-message queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import update

from queue_core import BadOption, Store
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.tables import slices
from tests.factories import make_queue

DISPLAY = pa.schema([("kind", pa.string()), ("text", pa.string()), ("times", pa.int32())])


def shown(messages: pa.Table, *columns: str) -> list[Any]:
    rows = messages.select(list(columns)).to_pylist()
    return [tuple(row.values()) if len(columns) > 1 else row[columns[0]] for row in rows]


def _age(store: Store, seconds: int) -> None:
    """Make all messages older."""
    earlier = slices.c.loaded_at - seconds * 10**6
    store.catalog.write(lambda c: c.execute(update(slices).values(loaded_at=earlier)))


def test_progress_is_reported_faster_than_it_is_shown(store: Store) -> None:
    display = make_queue(store, schema=DISPLAY, key="kind", policy="latest")
    for done in (10, 20, 30):
        display.load([{"kind": "copying", "text": f"{done}%"}])
    display.load([{"kind": "alarm", "text": "disk full"}])
    assert shown(display.fire("all").messages, "text") == ["30%", "disk full"]


def test_repeated_events_become_one_with_a_count(store: Store) -> None:
    events = make_queue(store, schema=DISPLAY, key="kind", policy="merge_adjacent(count(times))")
    for kind in ("X", "X", "X", "Y", "X"):
        events.load([{"kind": kind, "text": "occurred"}])
    assert shown(events.fire("all").messages, "kind", "times") == [
        ("X", 3),
        ("Y", None),
        ("X", None),
    ]


def test_on_and_off_leave_nothing_unless_the_on_was_retrieved(store: Store) -> None:
    lights = make_queue(
        store, schema=DISPLAY, key="kind", policy="annihilate(text = 'on', text = 'off')"
    )
    lights.load([{"kind": "kitchen", "text": "on"}, {"kind": "hall", "text": "on"}])
    lights.load([{"kind": "kitchen", "text": "off"}])
    assert shown(lights.fire("all").messages, "kind") == ["hall"]
    lights.load([{"kind": "hall", "text": "off"}])
    assert shown(lights.fire("all").messages, "text") == ["off"]


def test_a_faulty_line_is_sent_again_from_the_oldest_on(store: Store) -> None:
    line = make_queue(store, schema=DISPLAY, key="kind", policy="confirm(text = 'ack')")
    line.load([{"kind": "A", "text": f"packet {number}"} for number in range(4)])
    assert shown(line.get_and_keep(3).messages, "text") == ["packet 0", "packet 1", "packet 2"]
    confirmed = line.load([{"kind": "A", "text": "ack"}])
    assert confirmed.to_pylist() == [None]
    # The transmission failed: unconfirmed packets come again, then those that were not sent yet.
    assert line.reset() == 2
    assert shown(line.get_and_keep("all").messages, "text") == ["packet 1", "packet 2", "packet 3"]
    line.load([{"kind": "A", "text": "ack"}] * 3)
    assert line.reset() == 0
    assert line.browse().num_rows == 0
    # With nothing left to confirm, an ack is a message like any other.
    line.load([{"kind": "A", "text": "ack"}])
    assert shown(line.fire("all").messages, "text") == ["ack"]


def test_messages_that_a_process_keeps_are_not_swept_and_are_reset_by_another_once_it_is_dead(
    store: Store,
) -> None:
    line = make_queue(store, schema=DISPLAY, key="kind")
    line.load([{"kind": "A", "text": "packet"}])
    line.get_and_keep("all")
    assert line.sweep(older_than=0) == 0
    assert line.reset() == 1
    line.get_and_keep("all")
    store.keeper.stop()
    assert line.reset() == 0
    store.catalog.write(lambda c: c.execute(update(consumers).values(heartbeat_at=0)))
    assert line.reset() == 1


def test_messages_that_a_living_process_keeps_are_reset_by_its_name_alone(
    store: Store, address: Any
) -> None:
    line = make_queue(store, schema=DISPLAY, key="kind")
    line.load([{"kind": "A", "text": f"packet {number}"} for number in range(3)])
    line.fire(1, consumer=store.consumer("python:me"))
    for nobody in ("nobody", "python:me"):
        with pytest.raises(BadOption, match=f"consumer='{nobody}'.*keeps"):
            line.reset(consumer=nobody)
    with type(store)(address) as other:
        theirs = other.queue("orders")
        kept = theirs.get_and_keep(1)
        (name,) = store.view("consumers").filter(pc.field("heartbeat_at").is_valid())["consumer"]

        assert line.reset() == 0
        assert line.reset(consumer=name.as_py()) == 1
        assert theirs.delete(kept) == 0
        assert shown(line.fire(1).messages, "text") == ["packet 1"]


def test_messages_that_are_kept_from_the_sideline_are_reset_too(store: Store) -> None:
    line = make_queue(store, schema=DISPLAY, key="kind")
    line.load([{"kind": "A", "text": "packet"}])
    line.sideline(line.fire())
    keeper = store.keeper.consumer()
    for name in (None, keeper.name):
        assert len(line.fire("all", magazine="sideline", consumer=keeper)) == 1
        assert line.reset(consumer=name) == 1
    assert shown(line.peek(magazine="sideline"), "text") == ["packet"]


def test_an_expired_message_meets_nobody(store: Store) -> None:
    display = make_queue(
        store, schema=DISPLAY, key="kind", policy="drop_duplicates", message_expiry=3600
    )
    row = {"kind": "copying", "text": "10%"}
    display.load([row])
    assert display.load([row]).null_count == 1
    _age(store, 4000)
    assert display.load([row]).null_count == 0
    assert shown(display.fire("all").messages, "text") == ["10%"]


def test_kept_messages_that_expire_do_not_come_again(store: Store) -> None:
    line = make_queue(store, schema=DISPLAY, key="kind", message_expiry=3600)
    line.load([{"kind": "A", "text": "packet"}])
    line.get_and_keep("all")
    _age(store, 4000)
    assert line.reset() == 1
    assert len(line.get_and_keep("all")) == 0
    assert line.admin.expire() == 1


@pytest.mark.parametrize("policy", ["drop_duplicates(text)", "merge_adjacent(last(text))"])
def test_a_message_is_expired_by_its_own_column(store: Store, policy: str) -> None:
    schema = pa.schema([*DISPLAY, ("_expires_at", pa.timestamp("us", "UTC"))])
    display = make_queue(store, schema=schema, key="kind", policy=policy)
    soon, late = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    row = {"kind": "copying", "text": "10%"}
    display.load([row | {"_expires_at": soon}])
    assert display.load([row | {"_expires_at": late}]).null_count == 0
    assert display.load([row | {"_expires_at": None}]).null_count == 1
    assert len(display.fire("all")) == 1


@pytest.mark.parametrize(
    "policy",
    [
        "drop_duplicates(kind)",
        "merge(count(times))",
        "latest",
        "annihilate(text = 'a', text = 'b')",
    ],
)
def test_an_expired_message_meets_nobody_in_its_own_load(store: Store, policy: str) -> None:
    schema = pa.schema([*DISPLAY, ("_expires_at", pa.timestamp("us", "UTC"))])
    display = make_queue(store, schema=schema, key="kind", policy=policy)
    row = {"kind": "copying", "times": 1}
    past = {"_expires_at": datetime(2000, 1, 1, tzinfo=UTC)}
    display.load([{"kind": "printing", "text": "b", "times": 1}])
    ids = display.load(
        [
            row | {"text": "a"} | past,
            row | {"text": "b"},
            row | {"kind": "printing", "text": "a"} | past,
        ]
    )
    assert ids.null_count == 0
    assert display.fire("all").messages.select(["text", "times"]).to_pylist() == 2 * [
        {"text": "b", "times": 1}
    ]


def test_a_held_message_is_met_before_its_time(store: Store) -> None:
    schema = pa.schema([*DISPLAY, ("_hold_until", pa.timestamp("us", "UTC"))])
    display = make_queue(store, schema=schema, key="kind", policy="merge(count(times))")
    later = datetime(2200, 1, 1, tzinfo=UTC)
    display.load([{"kind": "reminder", "_hold_until": later}])
    assert display.load([{"kind": "reminder"}]).null_count == 1
    assert len(display.fire("all")) == 0
    assert display.browse().column("times").to_pylist() == [2]


def test_a_consumer_selects_among_messages_that_a_policy_has_left(store: Store) -> None:
    display = make_queue(store, schema=DISPLAY, key="kind", policy="latest")
    for done in (10, 20, 30):
        display.load([{"kind": kind, "text": f"{done}%"} for kind in ("copying", "printing")])
    assert shown(display.fire("all", selector="text < '30%'").messages, "kind") == []
    assert shown(display.fire("all", selector="kind = 'printing'").messages, "text") == ["30%"]
    display.load([{"kind": "copying", "text": "40%"}])
    assert shown(display.fire("all", selector="text > '30%'").messages, "kind") == ["copying"]
