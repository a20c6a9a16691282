"""The seed's examples of a smart-message queue."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from queue_core import Store
from tests.factories import make_queue

DISPLAY = pa.schema([("kind", pa.string()), ("text", pa.string()), ("times", pa.int32())])


def shown(messages: pa.Table, *columns: str) -> list[Any]:
    rows = messages.select(list(columns)).to_pylist()
    return [tuple(row.values()) if len(columns) > 1 else row[columns[0]] for row in rows]


def test_progress_is_reported_faster_than_it_is_shown(store: Store) -> None:
    display = make_queue(store, schema=DISPLAY, key="kind", policy="latest")
    for done in (10, 20, 30):
        display.load([{"kind": "copying", "text": f"{done}%"}])
    display.load([{"kind": "alarm", "text": "disk full"}])
    assert shown(display.fire().messages, "text") == ["30%", "disk full"]


def test_repeated_events_become_one_with_a_count(store: Store) -> None:
    events = make_queue(store, schema=DISPLAY, key="kind", policy="merge_adjacent(count(times))")
    for kind in ("X", "X", "X", "Y", "X"):
        events.load([{"kind": kind, "text": "occurred"}])
    assert shown(events.fire().messages, "kind", "times") == [("X", 3), ("Y", None), ("X", None)]


def test_on_and_off_leave_nothing(store: Store) -> None:
    lights = make_queue(
        store, schema=DISPLAY, key="kind", policy="annihilate(text = 'on', text = 'off')"
    )
    lights.load([{"kind": "kitchen", "text": "on"}, {"kind": "hall", "text": "on"}])
    lights.load([{"kind": "kitchen", "text": "off"}])
    assert shown(lights.peek(), "kind") == ["hall"]


def test_an_off_is_told_when_the_on_was_retrieved(store: Store) -> None:
    lights = make_queue(
        store, schema=DISPLAY, key="kind", policy="annihilate(text = 'on', text = 'off')"
    )
    lights.load([{"kind": "kitchen", "text": "on"}])
    assert len(lights.fire()) == 1
    lights.load([{"kind": "kitchen", "text": "off"}])
    assert shown(lights.fire().messages, "text") == ["off"]
