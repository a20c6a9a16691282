"""What messages have in them: the values of a group of failures, and messages in flight."""

import html

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import update

from ignis_console import facets
from ignis_console.facets import facet, selector
from queue_core.catalog.tables import slices
from queue_core.selection.selection import condition_of
from queue_core.values.model import ROW_BITS
from tests.factories import orders

SCHEMA = pa.schema(
    [("number", pa.int64()), ("the name", pa.string()), ("paid", pa.bool_()), ("body", pa.binary())]
)
GROUP = {"group": "1", "kind": "exception", "fingerprint": "the card service answered *"}


@pytest.fixture
def tenants(store):
    """A queue of two hundred failures: half of acme's, a fifth of o'hara's, and others."""
    queue = store.create_queue("mail", SCHEMA, shards=3)
    names = ["acme"] * 100 + ["o'hara"] * 40 + [f"t{n}" for n in range(60)]
    for part in range(4):
        rows = {
            "number": list(range(50 * part, 50 * part + 50)),
            "the name": names[part::4],
            "paid": [None] * 50,
            "body": [b"x" * 100] * 50,
        }
        queue.load(pa.table(rows, schema=SCHEMA))
    firing = queue.fire("all")
    for at, size in ((0, 120), (120, 80)):
        reason = f"the card service answered {500 + at}"
        queue.sideline(firing.ids.slice(at, size), reason, kind="exception")
    return queue


def test_a_group_shows_columns_and_values_that_fill_the_selector(operator, tenants):
    page = operator.get("/api/queues/mail/sideline", params=GROUP).json()
    sample = page["sample"]
    assert (sample["size"], page["members"]) == (200, 200)
    assert sample["columns"] == ["the name", "paid", "number", "body"]
    assert {row["message_id"] for row in page["rows"]} == {int(each) for each in sample["rows"]}
    found = {
        each["column"]: [(v["value"], v["share"], v["selector"]) for v in each["values"]]
        for each in sample["facets"]
    }
    assert found == {
        "the name": [
            ("acme", 0.5, "`the name` = 'acme'"),
            ("o'hara", 0.2, "`the name` = 'o''hara'"),
        ],
        "paid": [(None, 1.0, "paid IS NULL")],
    }
    text = html.unescape(operator.get("/queues/mail/sideline", params=GROUP).text)
    (link,) = [part.split('"')[0] for part in text.split('href="') if "hara" in part.split('"')[0]]
    form = operator.get(link)
    assert "40 messages would go" in form.text
    assert "the card service answered *" in form.text


def test_a_sample_is_of_few_messages_and_segments(operator, tenants, monkeypatch):
    ids = np.sort(np.concatenate([(n << ROW_BITS) + np.arange(n) for n in range(1, 400)]))
    chosen = facets.chosen_of(ids)
    assert len(chosen) == facets.SAMPLE
    assert len(set(chosen >> ROW_BITS)) <= facets.SEGMENTS
    assert {ids[-1]} <= set(chosen)
    monkeypatch.setattr(facets, "SAMPLE", 20)
    page = operator.get("/queues/mail/sideline", params=GROUP).text
    assert "Of a sample of 20 messages." in page


def test_values_that_do_not_repeat_and_payloads_are_no_facets():
    def values(*given, kind="number"):
        field = SCHEMA.field(kind)
        column = pa.chunked_array([pa.array(given, field.type)])
        return [each.value for each in facet(column, field, SCHEMA).values]

    assert values() == values(1, 2, 3) == values(b"a", b"a", kind="body") == []
    assert values(1, 2, 1, None, None, None) == [None, 1]
    assert values("x" * 61, "x" * 61, kind="the name") == []
    assert selector("paid", True, SCHEMA) == "paid = true"
    assert selector("number", float("nan"), SCHEMA) is None


@pytest.mark.parametrize("text", [r"C:\new\table", "\\", r"\'", "o'hara", "\n"])
def test_the_selector_of_a_text_selects_it_alone(text):
    condition = condition_of(selector("the name", text, SCHEMA), SCHEMA)
    texts = [text, text + "!", "C:\new\table", "C:newtable", ""]

    assert condition.mask(pa.table({"the name": texts})).to_pylist() == [True] + [False] * 4


def test_messages_in_flight_are_listed_with_their_consumer(operator, store, queue):
    queue.load(orders(3, 100))
    queue.fire(1, selector="number = 101", consumer=store.consumer("second"))
    path = "/queues/orders/messages"
    page = operator.get("/api" + path, params={"state": "in flight"}).json()
    assert [each["_consumer"] for each in page["messages"]] == ["till", "till", "second"]
    chosen = {"state": "in flight", "selector": "number > 100"}
    (one,) = operator.get("/api" + path, params=chosen).json()["messages"]
    assert (one["number"], one["_consumer"]) == (101, "second")
    few = {"state": "in flight", "consumer": "till", "count": 1}
    (one,) = operator.get("/api" + path, params=few).json()["messages"]
    assert one["_consumer"] == "till"
    shown = operator.get(path, params=chosen | {"consumer": "till"}).text
    assert "No message is in flight that matches." in shown
    assert "Take back all that match…" in shown
    wrong = operator.get(path, params={"state": "in flight", "consumer": "nobody"})
    assert "has never fired" in wrong.text


def test_what_a_handler_that_hangs_holds_is_named_with_its_act(operator, store, queue):
    long_ago = slices.c.fired_at - 400_000_000
    older = update(slices).where(slices.c.fired_at.is_not(None)).values(fired_at=long_ago)
    store.catalog.write(lambda connection: connection.execute(older))

    (why, *_) = operator.get("/api/queues/orders").json()["why"]
    assert (why["kind"], why["action"]) == ("busy", "reload")
    assert why["fields"] == {"all": "1", "consumer": "till"}
    listed = operator.get("/queues/orders").text.split('id="problems"')[1].split('id="redrives"')[0]
    assert " holds 2 messages, the first for 6 min" in listed
    assert "Take back…" in listed
