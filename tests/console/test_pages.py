"""Each page and its twin in the API show what the store has, as text."""

import re
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from ignis_console import console
from ignis_console.actions import ACTIONS
from ignis_console.app import create_app
from ignis_console.config import ConsoleOptions
from ignis_console.pages import PAGES
from queue_core import CatalogUnavailable, Store
from queue_core.catalog.database import Catalog
from queue_core.catalog.record_tables import samples
from queue_core.upkeep.tasks.sample import sample
from queue_core.watching.wording import moment
from tests.conftest import catalog_url  # noqa: F401 - that of the console is on SQLite alone
from tests.console.clients import ORIGIN, log_in, token
from tests.dump import load_earlier
from tests.factories import make_filled, make_queue, orders, sideline_traced
from tests.waiting import until

#: A text that would run if a page did not escape it.
SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def address(page, queue, *, api=False):
    message = queue.choose("all").ids[0].as_py()
    path = page.api if api else page.path
    return path.format(queue=queue.name, message_id=message)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_page_and_its_twin_answer(operator, queue, page):
    html = operator.get(address(page, queue))
    twin = operator.get(address(page, queue, api=True))

    assert (html.status_code, twin.status_code) == (200, 200)
    assert "<!doctype html>" in html.text
    assert twin.json()
    # Nothing is loaded from other sites, or runs inline.
    loaded = re.findall(r'(?:src|href|action)="([^"]*)"', html.text)
    assert loaded
    assert [each for each in loaded if not each.startswith(("/", "?", "#"))] == []
    assert "style=" not in html.text
    assert not re.search(r"\son\w+=", html.text)


def test_the_queues(operator, store, queue):
    make_queue(store, "empty")
    sample(store.catalog)

    found = {row["name"]: row for row in operator.get("/api/queues").json()["queues"]}

    assert found["orders"]["waiting"] == 6
    assert found["orders"]["in_flight"] == 2
    assert found["orders"]["sidelined"] == 2
    assert found["empty"]["oldest_age"] is None
    # One sample tells no rate, and no rate is not 0.
    assert found["orders"]["loaded_per_s"] is None
    page = operator.get("/").text
    assert page.index(">empty<") < page.index(">orders<")
    assert '<span class="unknown">unknown</span>' in page


def test_a_rate_of_the_past_is_not_shown_as_a_present_one(serve, store, queue):
    sample(store.catalog)
    time.sleep(0.05)
    queue.load(orders(3, first=50))
    sample(store.catalog)

    def rates():
        operator = serve()
        log_in(operator)
        (row,) = operator.get("/api/queues").json()["queues"]
        one = operator.get("/api/queues/orders").json()["queue"]
        return row["loaded_per_s"], one["loaded_per_s"]

    assert all(rates())
    earlier = update(samples).values(taken_at=samples.c.taken_at - 90_000_000)
    store.catalog.write(lambda connection: connection.execute(earlier))

    assert rates() == (None, None)


def test_queues_are_searched_and_ordered(operator, store, queue):
    for number in range(3):
        make_queue(store, f"mail-{number}").load(orders(number))

    found = operator.get("/api/queues", params={"q": "MAIL", "sort": "waiting"}).json()

    assert [row["name"] for row in found["queues"]] == ["mail-2", "mail-1", "mail-0"]
    assert operator.get("/", params={"sort": "nothing"}).status_code == 400
    assert operator.get("/", params={"page": "-1"}).status_code == 400
    assert operator.get("/api/queues", params={"page": "9"}).json()["page"] == 1


def test_one_queue(operator, queue):
    page = operator.get("/api/queues/orders").json()

    assert [(each["name"], each["held"]) for each in page["details"]["holders"]] == [("till", 2)]
    assert sum(row["waiting"] for row in page["details"]["shards"]) == 6
    assert sum(row["sidelined"] for row in page["details"]["shards"]) == 2
    assert page["details"]["skew"] >= 1
    assert operator.get("/queues/orders", params={"span": "year"}).status_code == 400


@pytest.mark.parametrize(
    "path", ["messages?count=00000000000000000001000000", f"messages/{'0' * 20}{'9' * 25}"]
)
def test_a_number_of_many_digits_is_read_whole(operator, queue, path):
    refused = operator.get(f"/api/queues/orders/{path}")

    assert refused.status_code == 400
    assert "use a whole number" in refused.text


def test_messages_are_found_by_a_selector(operator, queue):
    path = "/api/queues/orders/messages"

    all_of_them = operator.get(path).json()["messages"]
    some = operator.get(path, params={"selector": "number >= 10"}).json()["messages"]
    aside = operator.get(path, params={"magazine": "sideline"}).json()["messages"]

    assert len(all_of_them) == 6
    assert sorted(row["number"] for row in some) == [10, 11]
    assert len(aside) == 2
    assert queue.metadata().num_rows == 4
    wrong = operator.get("/queues/orders/messages", params={"selector": "nmber = 1"})
    assert wrong.status_code == 400
    assert "did you mean &#39;number&#39;?" in wrong.text
    assert operator.get(path, params={"selector": "nmber = 1"}).status_code == 400


def test_one_message_with_its_whole_life(operator, store, queue):
    rows = store.view("sideline", "orders").to_pylist()
    message = rows[0]["message_id"]
    path = f"/api/queues/orders/messages/{message}"

    aside = operator.get(path).json()["life"]
    assert aside["place"]["magazine"] == "sideline"
    assert aside["place"]["state"] == "waiting"
    assert aside["failures"][0]["kind"] == "exception"
    assert aside["failures"][0]["reason"] == "no such customer\n<b>line 2</b>"
    assert aside["payload"]["number"] < 12

    queue.choose(message).requeue()
    queue.fire(100, consumer=store.consumer("other", beats=True))
    held = operator.get(path).json()["life"]["place"]
    assert (held["state"], held["holder"]) == ("in flight", "other")
    happened = operator.get(path).json()["life"]["events"]
    assert happened[0]["text"] == "Loaded"
    assert [each["at"] for each in happened] == sorted(each["at"] for each in happened)
    assert [each["consumer"] for each in happened if each["text"] == "Fired"] == ["other"]

    queue.choose(message).reload(consumer="other")
    queue.choose(message).delete()
    gone = operator.get(path).json()["life"]
    assert gone["place"] is None
    assert gone["payload"] is None
    assert len(gone["failures"]) == 1
    assert "no such message now" in operator.get(f"/queues/orders/messages/{message}").text


def test_what_is_not_there_is_404_and_a_wrong_id_400(operator, queue):
    for path in ["/queues/none", "/queues/none/sideline", "/nowhere"]:
        assert operator.get(path).status_code == 404
        assert operator.get(f"/api{path}").status_code == 404
    for message in ["x", "-1", "9" * 30, "7", "1e3"]:
        found = operator.get(f"/api/queues/orders/messages/{message}")

        assert found.status_code == 400
        assert found.json()["message"]


def test_what_others_wrote_is_shown_as_text(operator, store):
    """Columns, reasons, selectors, searches and names of consumers may hold anything."""
    queue = make_queue(store)
    queue.load([{"number": 1, "customer": SCRIPT, "amount": 1.0}])
    queue.load([{"number": 2, "customer": SCRIPT, "amount": 1.0}])
    firing = queue.fire(1)
    queue.sideline(firing.ids, SCRIPT, kind="exception")
    message = firing.ids[0].as_py()
    pages = [
        operator.get("/queues/orders/sideline"),
        operator.get("/queues/orders/sideline", params={"group": "1", "kind": SCRIPT}),
        operator.get(
            "/queues/orders/sideline",
            params={"group": "1", "kind": "exception", "reason": SCRIPT},
        ),
        operator.get("/queues/orders/messages", params={"selector": SCRIPT}),
        operator.get("/queues/orders/messages"),
        operator.get(f"/queues/orders/messages/{message}"),
        operator.get("/", params={"q": SCRIPT}),
        operator.get("/queues/orders/actions/delete", params={"selector": SCRIPT, "ids": SCRIPT}),
        operator.get("/queues/orders/actions/sideline", params={"reason_text": SCRIPT, "all": "1"}),
        operator.get(f"/queues/{SCRIPT}"),
        operator.get("/login", params={"next": SCRIPT}),
    ]

    for page in pages:
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert len(re.findall("<script", page.text)) == 1
    shown = [page for page in pages if "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text]
    assert len(shown) >= 8


#: A character that would turn what follows it around.
TURN = "\u202e"


def test_times_that_python_lacks_are_shown(operator, store):
    """A message with such a time is one that no handler of single messages can be given."""
    schema = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    queue = make_queue(store, "late", schema)
    far = pa.array([253_402_300_800_000_000], pa.int64()).cast(schema.field("at").type)
    (message,) = queue.load(pa.table({"number": [1], "at": far})).to_pylist()
    assert "10000-01-01" in operator.get("/queues/late/messages").text
    queue.choose(message).sideline("too late")
    assert "10000-01-01" in operator.get(f"/queues/late/messages/{message}").text
    group = {"group": "1", "kind": "by_hand", "reason": "too late"}
    assert operator.get("/queues/late/sideline", params=group).status_code == 200


def test_characters_that_turn_a_text_around_are_shown_as_escapes(operator, queue):
    reason = f"paid {TURN}ton saw"
    (message,) = queue.load(orders(1, 50)).to_pylist()
    queue.choose(message).sideline(reason)
    group = {"group": "1", "kind": "by_hand", "reason": reason}
    by_selector = {"selector": f"customer <> '{TURN}'"}
    pages = [
        operator.get("/queues/orders/sideline"),
        operator.get("/queues/orders/sideline", params=group),
        operator.get(f"/queues/orders/messages/{message}"),
        operator.get("/queues/orders/actions/redrive", params=group | {"force": "1"}),
        operator.get("/queues/orders/actions/sideline", params=by_selector),
    ]

    for page in pages:
        assert "\\u202e" in page.text
        # But the values of fields come back as they are.
        assert TURN not in re.sub(r'value="[^"]*"', "", page.text)
    form = group | {"force": "1", "expected": "1", "csrf": token(operator)}
    assert f'name="reason" value="{reason}"' in pages[3].text
    assert "1 message redriven." in operator.post("/queues/orders/actions/redrive", data=form).text


@pytest.mark.parametrize("path", ["/queues", "/queues/orders", "/queues/orders/sideline"])
def test_a_former_reading_is_shown_as_old(operator, queue, monkeypatch, path):
    """Also right after an action, which has everything read anew."""
    former = operator.get("/api" + path).json()
    assert former["fresh"]["error"] is None

    def fail(self):
        raise CatalogUnavailable("the database is down")

    monkeypatch.setattr(Catalog, "read", fail)
    for _ in range(2):
        operator.app.state.console.changed("orders")
        page, twin = operator.get("/" if path == "/queues" else path), operator.get("/api" + path)
        assert (page.status_code, twin.status_code) == (200, 200)
        assert "Old figures" in page.text
        assert twin.json()["fresh"]["error"] == "the database is down"
        assert twin.json() | {"fresh": None} == former | {"fresh": None}
    monkeypatch.undo()
    operator.app.state.console.changed("orders")
    assert operator.get("/api" + path).json()["fresh"]["error"] is None


def test_messages_of_a_dead_process_without_heartbeats_are_a_problem(operator, store):
    made = make_filled(store, 5, sweep_after=0.1)
    made.fire(3)
    time.sleep(0.2)

    (found,) = operator.get("/api/queues/orders").json()["problems"]

    assert found["kind"] == "stuck"
    assert found["text"].startswith("3 messages have been in flight for longer than")


def test_the_figures_follow_the_store(operator, queue):
    assert operator.get("/api/queues").json()["waiting"] == 6
    queue.load(orders(5, first=100))

    until(lambda: operator.get("/api/queues").json()["waiting"] == 11)


def test_a_message_that_returned_from_the_sideline_was_not_fired_since(operator, store, queue):
    message = store.view("sideline", "orders").to_pylist()[0]["message_id"]
    path = f"/api/queues/orders/messages/{message}"
    texts = lambda: [each["text"] for each in operator.get(path).json()["life"]["events"]]  # noqa: E731
    assert texts() == ["Loaded", "Fired last", "Came to sideline", "Attempt 1 ended"]

    queue.choose(message).requeue()
    assert texts() == ["Loaded", "Attempt 1 ended", "Came to main"]

    firing = queue.fire(100)
    queue.reload(firing.ids)
    assert texts() == ["Loaded", "Attempt 1 ended", "Came to main", "Fired last"]


def test_a_requeued_message_is_as_old_as_its_load(operator, store):
    """The page, its twin, the view and the metrics have one age; it is no problem by itself."""
    queue = make_filled(store, 2, shards=1)
    queue.sideline(queue.fire(1).ids)
    # One with messages in flight, so that the queue has a consumer.
    queue.fire(1, consumer=store.consumer("till", beats=True))
    load_earlier(store, 7200)
    queue.choose("all").requeue()
    wanted = replace(operator.app.state.console.options, oldest_wanted=60.0)
    operator.app.state.console.options = wanted

    page = operator.get("/api/queues/orders").json()

    assert 7200 <= page["queue"]["oldest_age"] <= store.view("queues")["oldest_age"][0].as_py()
    assert 0 <= page["queue"]["longest_wait"] < 60
    assert [each for each in page["problems"] if each["kind"] == "old"] == []
    reading = re.search(
        r"oldest_message_age_seconds{queue=.orders.} ([\d.]+)", operator.get("/metrics").text
    )
    assert float(reading[1]) >= page["queue"]["oldest_age"]


def test_a_store_that_is_gone_is_an_error_page(address, operator, store, queue):
    """Its figures are not shown any more, however lately they were read."""
    with Store.open(catalog=address.catalog, storage=address.storage, create=False) as opened:
        app = create_app(opened, ConsoleOptions())
        client = TestClient(app, base_url=ORIGIN)
        log_in(client)
        message = queue.choose("all").ids[0].as_py()
        paths = [
            each.path.format(queue="orders", message_id=message)
            for each in PAGES
            if each.name != "log"
        ]
        for path in paths:
            assert client.get(path).status_code == 200
        take_away(store)
        app.state.console.changed("orders")

        paths += ["/queues/none", "/queues/orders/messages?selector=number+>+1"]
        for name, action in ACTIONS.items():
            known = [each.name for each in action.fields]
            every = "?all=1" if "all" in known else "?job=1" if "job" in known else ""
            paths.append(f"/queues/orders/actions/{name}{every}")
        found = {path: client.get(path) for path in paths}

        assert {path: each.status_code for path, each in found.items()} == dict.fromkeys(found, 503)
        said = re.compile("its catalog is missing|lacks a table or a column")
        assert all(said.search(each.text) for each in found.values())
        form = {"csrf": token(client), "expected": 9}
        assert client.post("/queues/orders/actions/pause", data=form).status_code == 503
        assert client.get("/api/queues").status_code == 503
        assert client.get("/log").status_code == 200
        app.state.console.close()


def take_away(store):
    """Remove the catalog of a store."""
    if store.catalog.file is not None:
        for file in store.catalog.file.parent.glob("catalog.db*"):
            file.unlink()
        return
    with store.catalog.engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")


def test_each_group_and_each_message_of_a_large_sideline_can_be_reached(operator, store):
    queue = make_filled(store, 350, shards=1)
    firing = queue.fire(350)
    for place in range(120):
        reason = f"{'x' * place} at {place}"
        queue.sideline(firing.ids[place : place + 1], reason, kind="exception")
    queue.sideline(firing.ids[120:], "the bank is closed", kind="exception")
    path = "/api/queues/orders/sideline"

    def pages(**group):
        found = [operator.get(path, params=group | {"page": page}).json() for page in (1, 2, 3)]
        return {page["pages"] for page in found}, found

    count, groups = pages()
    assert count == {2}
    assert len({each["fingerprint"] for page in groups for each in page["groups"]}) == 121
    count, members = pages(group="1", kind="exception", fingerprint="the bank is closed")
    assert count == {3}
    assert len({row["message_id"] for page in members for row in page["rows"]}) == 230
    (found,) = operator.get(path, params={"q": "AT 119"}).json()["groups"]
    assert (found["fingerprint"], found["messages"]) == (f"{'x' * 119} at *", 1)
    assert "Page 2 of 2" in operator.get(path[4:], params={"page": "2"}).text
    assert operator.get(path, params={"page": "0"}).status_code == 400


def test_an_action_is_seen_by_the_next_look_and_in_haste_after_it(serve, store, queue, monkeypatch):
    """Also while others look at many queues, for which each is read less often."""
    monkeypatch.setattr(console, "SIDELINE_SECONDS", 2.0)
    operator = serve()
    log_in(operator)
    for number in range(12):
        make_queue(store, f"mail-{number}")
        operator.get(f"/queues/mail-{number}/sideline")
    path, csrf = "/api/queues/orders/sideline", token(operator)
    assert operator.get(path).json()["messages"] == 2

    body = {"force": True, "expected": 2, "csrf": csrf}
    assert operator.post("/api/queues/orders/actions/redrive", json=body).status_code == 200
    assert operator.get(path).json()["messages"] == 0
    for number in range(12):
        operator.get(f"/queues/mail-{number}/sideline")
    queue.sideline(queue.fire(1).ids)

    deadline = time.monotonic() + 6 * console.SIDELINE_SECONDS
    while operator.get(path).json()["messages"] == 0:
        assert time.monotonic() < deadline
        for number in range(12):
            operator.get(f"/queues/mail-{number}/sideline")
        time.sleep(0.1)


def test_the_figures_of_a_page_are_of_one_moment(operator, store, queue):
    """However the queue changes meanwhile, the sum of its shards is the figure above them."""
    for round in range(8):
        queue.load(orders(1, first=1000 + round))
        operator.app.state.console.changed("orders")
        page = operator.get("/api/queues/orders").json()
        assert sum(row["waiting"] for row in page["details"]["shards"]) == page["queue"]["waiting"]
        assert page["fresh"]["at"][:19] == moment(page["details"]["now"] * 1e6).isoformat()[:19]


def test_a_group_and_each_of_its_messages_have_the_trace_of_one(operator, store):
    queue = make_filled(store, 3, "traced", shards=1)
    firing = queue.fire(3)
    sideline_traced(queue, firing.ids[:1], reason="ValueError: <b>8</b>")
    sideline_traced(queue, firing.ids[1:2], reason="ValueError: <b>9</b>")
    queue.sideline(firing.ids[2:], "no trace")
    first, second, third = firing.ids.to_pylist()
    path = "/api/queues/traced"
    group = {"group": "1", "kind": "exception", "fingerprint": "ValueError: <b>*</b>"}

    found = operator.get(f"{path}/sideline", params=group).json()
    assert (found["members"], found["trace"]["message_id"]) == (2, first)
    assert [each["reason"] for each in found["reasons"]] == [
        f"ValueError: <b>{n}</b>" for n in (8, 9)
    ]
    page = operator.get(f"{path[4:]}/sideline", params=group).text
    assert "at\nValueError: &lt;b&gt;8&lt;/b&gt;" in page
    assert (
        operator.get(f"{path}/sideline", params={"group": "1", "kind": "rejected"}).json()["trace"]
        is None
    )
    for message, own in ((first, True), (second, False)):
        (failure,) = operator.get(f"{path}/messages/{message}").json()["life"]["failures"]
        assert failure["trace"]["message_id"] == first
        page = operator.get(f"{path[4:]}/messages/{message}").text
        assert ("which failed alike" not in page) == own
        assert "at\nValueError: &lt;b&gt;8&lt;/b&gt;" in page
    (failure,) = operator.get(f"{path}/messages/{third}").json()["life"]["failures"]
    assert failure["trace"] is None
