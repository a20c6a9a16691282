"""What an open console costs the store."""

import time

from sqlalchemy import event

from ignis_console import poller
from ignis_console.details import read_details
from ignis_console.pages import PAGES
from tests.factories import make_queue

#: The most transactions a second while somebody looks.
MOST = 2.0


def test_an_open_console_costs_two_transactions_a_second_at_most(operator, store, queue, begun):
    """Many people look at three pages, more often than the script of a page does."""
    make_queue(store, "other")
    live = ["/", "/problems", "/queues/orders", "/queues/other", "/queues/orders/sideline"]
    for path in live:
        operator.get(path)
    begun.clear()
    start = time.monotonic()

    while time.monotonic() - start < 6:
        for path in live:
            assert operator.get(path).status_code == 200
        time.sleep(0.1)

    assert 1 <= len(begun) <= MOST * (time.monotonic() - start)


def test_a_look_at_figures_that_were_just_read_costs_nothing(operator, queue, begun):
    for path in ("/", "/problems", "/queues/orders"):
        operator.get(path)
    begun.clear()

    for _ in range(20):
        operator.get("/")

    assert len(begun) <= 2


def test_nothing_is_read_while_nobody_looks(operator, queue, begun, monkeypatch):
    monkeypatch.setattr(poller, "IDLE_SECONDS", 0.0)
    operator.get("/")
    time.sleep(2.3)
    begun.clear()

    time.sleep(2.3)

    assert begun == []
    assert operator.get("/").status_code == 200


def test_no_page_writes(operator, store, queue):
    message = queue.choose("all").ids[0].as_py()
    written = []

    def note(connection, cursor, statement, *_):
        if statement.split(None, 1)[0].upper() in ("INSERT", "UPDATE", "DELETE"):
            written.append(statement)

    event.listen(store.catalog.engine, "before_cursor_execute", note)
    for page in PAGES:
        operator.get(page.path.format(queue="orders", message_id=message))

    assert written == []


def test_details_need_two_transactions(store, queue, begun):
    read_details(store, "orders", "hour")

    assert len(begun) <= 2
