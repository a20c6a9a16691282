"""The page of a long action answers soon, and the log shows the action until it ends."""

import sqlite3
import threading
from contextlib import closing

import pytest

from ignis_console import acting
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import task_log
from queue_core.errors import CatalogUnavailable
from queue_core.selection import rounds
from queue_core.verbs.operator.chosen import Chosen
from tests.console.clients import logged, token
from tests.dump import backdate
from tests.factories import make_filled
from tests.waiting import until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(acting, "ANSWER_SECONDS", 0.2)


def form(client):
    return {"csrf": token(client), "selector": "amount >= 0", "expected": "6"}


def log_of(client):
    return client.get("/api/log").json()


def ended(client):
    """Wait until no action is under way."""
    until(lambda: not log_of(client)["under_way"])
    return logged(client)


def test_a_long_action_goes_on_while_the_log_shows_it(operator, store, queue):
    operator.get("/queues/orders")
    sent = form(operator)
    with closing(sqlite3.connect(store.catalog.file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")

        answer = operator.post("/queues/orders/actions/sideline", data=sent, follow_redirects=False)

        assert (answer.status_code, answer.headers["location"]) == (303, "/log")
        (running,) = log_of(operator)["under_way"]
        assert (running["action"], running["queue"], running["messages"]) == (
            "sideline",
            "orders",
            6,
        )
        assert logged(operator) == []
        page = operator.get("/log").text
        assert "under way" in page
        assert "No actions yet" not in page
        writer.execute("ROLLBACK")
    (entry,) = ended(operator)
    assert (entry["messages"], entry["error"]) == (6, None)
    assert "under way" not in operator.get("/log").text


def test_the_log_shows_how_many_messages_are_done(operator, queue, monkeypatch):
    """On the page and in the API, after each round and before the end."""
    monkeypatch.setattr(rounds, "PART_SLICES", 1)
    monkeypatch.setattr(rounds, "PART_MESSAGES", 1)
    at_four, go_on = threading.Event(), threading.Event()
    done = []
    give_way = Catalog.give_way

    def stop_at_four(catalog):
        done.append(1)
        if len(done) == 4:
            at_four.set()
            assert go_on.wait(30)
        give_way(catalog)

    monkeypatch.setattr(Catalog, "give_way", stop_at_four)
    operator.post("/queues/orders/actions/sideline", data=form(operator), follow_redirects=False)
    assert at_four.wait(30)

    (running,) = log_of(operator)["under_way"]
    page = operator.get("/log").text
    go_on.set()

    assert (running["done"], running["messages"]) == (4, 6)
    assert "4 of 6 done" in page
    (entry,) = ended(operator)
    assert entry["messages"] == 6


def test_sweeps_and_redrives_of_the_console_have_brief_rounds(operator, store, queue, monkeypatch):
    """Those of other processes may keep a firing waiting for longer."""
    monkeypatch.setattr(acting, "ANSWER_SECONDS", 60)
    monkeypatch.setattr(rounds, "WHOLE_SLICES", 2)
    queue = make_filled(store, 6, "singles", each=1, shards=1)
    queue.fire("all")
    backdate(store, 100_000)
    monkeypatch.setattr(rounds, "PART_SLICES", 2)
    acts = (("sweep", "sweep", {"older_than": "10"}), ("redrive", "by_hand", {"force": "1"}))
    for action, task, fields in acts:
        path = f"/queues/singles/actions/{action}"
        sent = {"csrf": token(operator), "expected": "6"} | fields

        assert operator.post(path, data=sent, follow_redirects=False).status_code == 303
        with store.catalog.read() as connection:
            found = task_log.read(connection, [queue.info], [task]).to_pylist()
        assert [row["moved"] for row in found] == [2, 2, 2]


def test_an_action_that_loses_its_catalog_is_noted(operator, store, queue, monkeypatch):
    """Whatever the error is, and although the catalog cannot tell the time."""
    sent = form(operator)

    def lost(*_):
        monkeypatch.setattr(Catalog, "now", gone)
        raise RuntimeError("the disk is gone")

    def gone(_):
        raise CatalogUnavailable("the catalog is gone")

    monkeypatch.setattr(Chosen, "sideline", lost)
    with pytest.raises(RuntimeError):
        operator.post("/queues/orders/actions/sideline", data=sent)

    (entry,) = operator.app.state.console.log.latest()
    assert (entry.action, entry.messages) == ("sideline", None)
    assert "the disk is gone" in entry.error
    assert entry.at > "2026"


def test_the_end_of_the_console_waits_for_the_action(operator, store):
    queue = make_filled(store, 6)
    sent = form(operator)
    writer = sqlite3.connect(store.catalog.file, isolation_level=None, check_same_thread=False)
    with closing(writer):
        writer.execute("BEGIN IMMEDIATE")
        operator.post("/queues/orders/actions/sideline", data=sent, follow_redirects=False)
        writer.execute("ROLLBACK")
        operator.app.state.console.close()

    assert queue.browse(magazine="sideline").num_rows == 6
    (entry,) = operator.app.state.console.log.latest()
    assert entry.messages == 6
