"""The selectable-message queue: each of its known examples, as its users would write it."""

import pyarrow as pa

from queue_core import Store
from tests.factories import make_queue


def test_requests_of_higher_priority_are_considered_earlier(store: Store) -> None:
    """Priorities as categories: the oldest of the highest category that has any is taken."""
    schema = pa.schema([("request", pa.string()), ("priority", pa.int32())])
    requests = make_queue(store, "requests", schema, categories=["priority"])
    requests.load(
        [
            {"request": "report", "priority": 1},
            {"request": "order", "priority": 2},
            {"request": "alarm", "priority": 3},
            {"request": "alarm again", "priority": 3},
            {"request": "another order", "priority": 2},
        ]
    )
    taken = []
    while len(firing := requests.fire(1, order_by="MAX(priority)")):
        taken.extend(firing.messages["request"].to_pylist())
    assert taken == ["alarm", "alarm again", "order", "another order", "report"]


def test_a_printer_takes_small_jobs_first_and_forgets_no_large_one(store: Store) -> None:
    """Size and queueing time together; and now and then simply the oldest job."""
    jobs = make_queue(store, "jobs", pa.schema([("job", pa.string()), ("pages", pa.int32())]))
    jobs.load([{"job": "book", "pages": 400}])
    jobs.load([{"job": "letter", "pages": 1}, {"job": "paper", "pages": 12}])
    assert jobs.peek(1, order_by="MIN(pages)")["job"].to_pylist() == ["letter"]
    # A page less for each second of waiting: nothing waits for ever.
    composed = jobs.fire(1, order_by="pages - _age, pages")
    assert composed.messages["job"].to_pylist() == ["letter"]
    oldest = jobs.fire(1, order_by="MAX(_age)")
    assert oldest.messages["job"].to_pylist() == ["book"]


def test_a_disk_serves_what_is_near_its_head(store: Store) -> None:
    """A set of ranges that matches the position of the head; and any request when none does."""
    schema = pa.schema([("cylinder", pa.int32()), ("sector", pa.int32())])
    requests = make_queue(store, "requests", schema, attributes=["cylinder", "sector"])
    requests.load([{"cylinder": c, "sector": s} for c, s in [(900, 1), (10, 7), (12, 2), (11, 9)]])
    head = "cylinder BETWEEN 9 AND 12 AND (sector BETWEEN 6 AND 9 OR sector < 2)"
    served = [
        (row["cylinder"], row["sector"])
        for _ in range(4)
        for row in requests.fire(1, selector=head, fallback=True).messages.to_pylist()
    ]
    assert served == [(10, 7), (11, 9), (900, 1), (12, 2)]


def test_a_sheet_metal_cutter_takes_orders_for_the_sheet_that_is_prepared(store: Store) -> None:
    """Equality with the width of the sheet; all such orders are placed on it together."""
    schema = pa.schema([("order", pa.int64()), ("width", pa.int32()), ("shape", pa.string())])
    orders = make_queue(store, "orders", schema, categories=["width"])
    orders.load([{"order": n, "width": 500 + 250 * (n % 3), "shape": "disc"} for n in range(30)])
    sheet = orders.fire("all", selector="width = 750")
    assert sheet.messages["order"].to_pylist() == list(range(1, 30, 3))
    small = sheet.ids.to_pylist()[:6]
    orders.delete(small)
    # What does not fit on what is left of the sheet waits for the next one, at its old place.
    orders.reload(sheet.ids.to_pylist()[6:])
    assert orders.fire(1, selector="width = 750").messages["order"].to_pylist() == [19]


def test_no_message_is_forgotten_where_priorities_grow_with_age(store: Store) -> None:
    """The queue itself sees to it: what waits gains one of priority each tenth of a second."""
    schema = pa.schema([("task", pa.string()), ("priority", pa.int32())])
    tasks = make_queue(store, "tasks", schema, priority="priority", priority_aging=0.1)
    tasks.load([{"task": "forgotten", "priority": 0}])
    taken: list[str] = []
    while "forgotten" not in taken:
        # Something more important comes all the time.
        tasks.load([{"task": "urgent", "priority": 5}])
        taken.extend(tasks.fire(1).messages["task"].to_pylist())
    assert set(taken[:-1]) <= {"urgent"}


def test_a_consumer_of_one_type_gets_its_oldest_message_or_any(store: Store) -> None:
    """Like `msgrcv` of System V: a type, or 0 for the oldest message."""
    schema = pa.schema([("type", pa.int64()), ("text", pa.string())])
    messages = make_queue(store, "messages", schema, attributes=["type"])
    messages.load([{"type": 1 + n % 2, "text": str(n)} for n in range(6)])
    assert messages.fire(1, selector="type = 2").messages["text"].to_pylist() == ["1"]
    assert messages.fire(1).messages["text"].to_pylist() == ["0"]
    assert len(messages.fire(1, selector="type = 3")) == 0
