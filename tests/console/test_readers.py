"""The page of a topic shows its readers and who keeps what; that of a subscription, its root."""

import re

import pytest

from queue_core.watching import wording
from tests.conftest import catalog_url  # noqa: F401 - that of the console is on SQLite alone
from tests.dump import age, load_earlier, log_earlier
from tests.factories import make_queue, orders

HOUR = 3_600


@pytest.fixture
def topics(store):
    """Two topics: one with readers of each kind, and one with one reader that is not behind."""
    topic = make_queue(store, shards=2, log="1 hour", message_expiry="1 hour")
    other = make_queue(store, "mail", log="7 days")
    billing = store.subscribe("billing", to="orders", late="5 hours, 1 GB")
    store.subscribe("large", to="orders", selector="number >= 10")
    store.subscribe("largest", to="large", selector="number >= 15", late="3 hours")
    report = store.subscribe("report", to="orders", when_late="drop")
    store.subscribe("letters", to="mail")
    topic.load(orders(20))
    billing.delete(billing.fire(5))
    report.admin.detach()
    billing.admin.snapshot("before-v2")
    load_earlier(store, 2 * HOUR)
    log_earlier(store, 2 * HOUR, "loaded_at", "logged_at")
    age(store, 2 * HOUR)
    topic.load(orders(4, first=20))
    other.load(orders(3))
    return topic


def readers_of(operator, queue):
    details = operator.get(f"/api/queues/{queue}").json()["details"]
    return details["log"], {each["queue"]: each for each in details["readers"]}


def table_of(operator, queue):
    """The rows of readers as a person reads them."""
    page = operator.get(f"/queues/{queue}").text
    rows = re.search(r'<tbody id="readers".*?</tbody>', page, re.DOTALL)[0]
    cells = [re.findall(r"<t[hd].*?</t[hd]>", row) for row in rows.split("</tr>")]
    return [[re.sub(r"<[^>]*>", "", each) for each in row] for row in cells if row]


def test_a_topic_shows_its_readers_and_who_keeps_what(operator, store, topics):
    log, found = readers_of(operator, "orders")

    assert [*found] == ["billing", "large", "largest", "report"]
    assert {name: each["behind"] for name, each in found.items()} == {
        "billing": 19,
        "large": 24,
        "largest": 24,
        "report": 0,
    }
    assert {each["log_of"] for each in found.values()} == {"orders"}
    assert [each["state"] for each in found.values()] == ["reading"] * 3 + ["detached"]
    assert 2 * HOUR < found["billing"]["behind_seconds"] < 2 * HOUR + 60
    assert 3 * HOUR - 60 < found["billing"]["headroom"] < 3 * HOUR
    assert found["large"]["headroom"] is None
    kept = {
        (row["kept_by"], row["subscription"]): row["bytes"]
        for row in store.view("retained", "orders").to_pylist()
    }
    assert log["messages"] == 24
    assert 0 < log["by_setting"] == kept["log", None] < log["bytes"]
    assert log["by_snapshots"] == {"billing@before-v2": kept["snapshot", "billing@before-v2"]}
    assert found["large"]["keeps"] == kept["subscription", "large"] == log["bytes"]
    assert 0 < found["billing"]["keeps"] < log["bytes"]
    assert found["report"]["keeps"] == 0


def test_a_person_reads_the_same(operator, topics):
    _, found = readers_of(operator, "orders")
    rows = {row[0]: row[1:] for row in table_of(operator, "orders")}

    size = wording.size
    behind, keeps = (size(found["billing"][name]) for name in ("behind_bytes", "keeps"))
    assert rows["billing"] == [
        "19", "2 h", behind, "5 hours, 1 GB, detach", "2 h 59 min", keeps
    ]  # fmt: skip
    assert rows["large number &gt;= 10"][:2] == ["at most 24", "2 h"]
    assert rows["report detached"][0] == "0"
    assert rows["report detached"][-1] == "0 bytes"
    assert rows["billing@before-v2 snapshot"][0] == ""
    assert len(rows) == 5
    page = operator.get("/queues/orders").text
    assert 'href="/queues/largest"' in page
    assert "24 messages and " in page
    # The hidden queue of a snapshot has no page, and is in no list.
    assert 'href="/queues/billing@' not in page
    assert "@" not in operator.get("/").text
    assert operator.get("/queues/billing@before-v2").status_code == 404


def test_a_subscription_links_to_its_root_and_says_where_it_stands(operator, topics):
    log, found = readers_of(operator, "largest")

    assert log is None
    assert [*found] == ["largest"]
    (row,) = table_of(operator, "largest")
    assert row[0] == "largest (number &gt;= 10) AND (number &gt;= 15)"
    assert row[1:3] == ["at most 24", "2 h"]
    assert row[4] == "3 hours, detach"
    assert row[5].startswith("59 min ")
    assert len(row) == 6
    page = operator.get("/queues/largest").text
    assert 'Reads the log of <a href="/queues/orders">orders</a>' in page
    assert "billing" not in page


def test_each_topic_shows_its_own_readers(operator, store, topics):
    make_queue(store, "plain")

    log, found = readers_of(operator, "mail")
    assert [*found] == ["letters"]
    assert (log["messages"], log["by_snapshots"]) == (3, {})
    assert readers_of(operator, "plain") == (None, {})
    assert 'id="readers"' not in operator.get("/queues/plain").text
    store.queue("plain").admin.change_settings(log="1 hour")
    operator.app.state.console.changed("plain")
    page = operator.get("/queues/plain").text
    assert "Nobody reads the log with a subscription." in page
    assert "The log has no message." in page


def test_the_problems_of_readers_are_shown_as_others_are(operator, topics):
    kinds = {each["kind"]: each for each in operator.get("/api/problems").json()["groups"]}

    assert [each["queue"] for each in kinds["late"]["problems"]] == ["largest"]
    assert [each["queue"] for each in kinds["detached"]["problems"]] == ["report"]
    page = operator.get("/problems").text
    assert "by its setting late, it will be detached in" in page
    assert "it gets nothing more from the log" in page
    (row,) = operator.get("/api/queues", params={"q": "largest"}).json()["queues"]
    assert row["problems"] >= 1
    assert "it will be detached in" in operator.get("/queues/largest").text


def test_the_values_of_a_group_need_nothing_of_the_log(operator, store):
    """To take in a long one takes a while, and waits for whoever loads or fires."""
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("reader", to="orders")
    topic.load(orders(6))
    reader.sideline(reader.fire(2), "no such customer", kind="exception")
    topic.load(orders(6, first=6))
    before = store.view("slices", "reader").num_rows

    group = {"group": "1", "kind": "exception", "fingerprint": "no such customer"}
    page = operator.get("/api/queues/reader/sideline", params=group).json()

    assert (page["members"], page["sample"]["size"]) == (2, 2)
    assert store.view("slices", "reader").num_rows == before
