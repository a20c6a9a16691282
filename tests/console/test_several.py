"""Actions on several queues: each is counted first, and one that refuses keeps none from it."""

import html
import re

import pytest
from starlette.exceptions import HTTPException

from ignis_console import acting
from tests.factories import drop, make_filled


@pytest.fixture
def queues(store):
    return [make_filled(store, 3, name) for name in ("acme.a", "acme.b", "globex")]


def hidden(text: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))


def states(store) -> list[str]:
    return store.view("queues").column("state").to_pylist()


def test_ticked_queues_are_counted_and_paused(operator, store, queues):
    assert operator.get("/").text.count('name="queues"') == 3

    # One may be named twice.
    page = operator.get("/actions/pause?queues=acme.a&queues=acme.b&queues=acme.a").text

    assert page.count("3 messages wait") == 2
    assert "globex" not in page
    assert (hidden(page)["queues"], hidden(page)["expected"]) == ("acme.a acme.b", "3 3")
    done = operator.post("/actions/pause", data=hidden(page), follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, "/log")
    assert states(store) == ["paused", "paused", "active"]
    assert operator.post("/actions/pause", data={"queues": "globex"}).status_code == 403


def test_a_queue_that_refuses_keeps_no_other_from_it(operator, store, queues):
    page = operator.get("/actions/pause?queues=acme.a&queues=globex").text
    queues[0].admin.deactivate()

    refused = operator.post("/actions/pause", data=hidden(page))

    assert refused.status_code in (400, 409)
    assert "was deactivated" in refused.text
    assert states(store) == ["deactivated", "active", "paused"]


def test_a_queue_that_is_gone_hides_not_what_was_done_with_the_others(operator, store, queues):
    page = operator.get("/actions/pause?queues=acme.a&queues=globex").text
    drop(queues[0])

    refused = operator.post("/actions/pause", data=hidden(page))

    assert refused.status_code == 404
    assert "acme.a: the store has no queue" in html.unescape(refused.text)
    assert 'href="/queues/globex"' in refused.text
    assert 'href="/queues/acme.a"' not in refused.text
    assert states(store) == ["active", "paused"]


def test_a_queue_whose_action_finds_no_turn_is_named(operator, store, queues, monkeypatch):
    page = operator.get("/actions/pause?queues=acme.a&queues=globex").text
    run = acting.run

    def busy(call, action):
        if call.ask.queue == "globex":
            raise HTTPException(503, "nothing was changed: other actions wait for the catalog")
        return run(call, action)

    monkeypatch.setattr(acting, "run", busy)
    refused = operator.post("/actions/pause", data=hidden(page))

    assert refused.status_code == 503
    assert "globex: nothing was changed" in refused.text
    assert states(store) == ["paused", "active", "active"]


@pytest.mark.parametrize("query", ["", "?queues=", "?queues=nosuch"])
def test_without_a_queue_nothing_is_counted(operator, queues, query):
    assert operator.get(f"/actions/pause{query}").status_code in (400, 404)


def test_who_may_only_look_ticks_nothing(looker, queues):
    assert 'name="queues"' not in looker.get("/").text
    assert looker.get("/actions/pause?queues=globex").status_code == 403
