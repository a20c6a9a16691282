"""An action changes the messages that were shown, and none that come back meanwhile."""

import json

import pytest

from ignis_console import console
from queue_core import Queue
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.verbs.operator import jobs
from queue_core.verbs.operator.chosen import Chosen
from tests.conftest import catalog_url  # noqa: F401 - that of the console is on SQLite alone
from tests.console.clients import log_in, token
from tests.dump import backdate
from tests.factories import load_singly, make_filled, numbers_of

DELETE = "/api/queues/orders/actions/delete"


@pytest.fixture
def queue(store):
    """Orders 0 to 3 are in flight, and 4 to 11 wait, each a slice of its own."""
    made = make_filled(store, 12, each=1)
    made.firing = made.fire(4)
    return made


def before(monkeypatch, kind, method, happens):
    """Let something happen right before each call of a method."""
    original = getattr(kind, method)

    def delayed(*args, **how):
        happens()
        return original(*args, **how)

    monkeypatch.setattr(kind, method, delayed)


def shown(operator, **fields):
    return operator.get(DELETE, params=fields).json()


def done(operator, **fields):
    headers = {"X-CSRF-Token": token(operator)}
    return operator.post(DELETE, json=fields | {"confirm": "orders"}, headers=headers)


def left(queue):
    return numbers_of(queue.browse())


def test_messages_that_come_back_right_before_the_action_stay(operator, queue, monkeypatch):
    before(monkeypatch, Chosen, "delete", lambda: queue.reload(queue.firing))

    answer = done(operator, selector="number >= 0", expected=8)

    assert (answer.status_code, answer.json()["messages"]) == (200, 8)
    assert left(queue) == [0, 1, 2, 3]


def test_messages_that_come_back_before_the_confirmation_stay(operator, queue):
    """Although there are fewer than were shown, because others were fired."""
    count = shown(operator, all="1")
    assert (count["messages"], bool(count["shown"])) == (8, True)
    queue.fire(6)
    queue.reload(queue.firing)

    answer = done(operator, all=True, expected=8, shown=count["shown"])

    assert answer.json()["messages"] == 2
    assert left(queue) == list(range(10))


def test_new_messages_do_not_keep_a_named_count_from_being_done(operator, queue):
    count = shown(operator, all="1")
    load_singly(queue, 3, first=20)
    queue.reload(queue.firing)

    assert done(operator, all=True, expected=8).status_code == 409
    assert done(operator, all=True, expected=8, shown=count["shown"]).json()["messages"] == 8
    assert left(queue) == [0, 1, 2, 3, 20, 21, 22]


def test_a_count_that_is_no_longer_known_is_refused(operator, queue):
    answer = done(operator, all=True, expected=8, shown="of-another-process")

    assert answer.status_code == 409
    assert "no longer knows which messages were shown; look again" in answer.json()["message"]
    assert len(left(queue)) == 12


def test_a_count_of_too_many_messages_has_no_name(serve, queue, monkeypatch):
    monkeypatch.setattr(console, "MOST_COUNTED", 100)
    operator = serve()
    log_in(operator)

    assert shown(operator, all="1")["shown"] is None
    assert done(operator, all=True, expected=8).json()["messages"] == 8


def test_the_form_of_a_page_names_its_count(operator, queue):
    path = DELETE.removeprefix("/api")
    page = operator.get(path, params={"all": "1"}).text
    name = page.partition('name="shown" value="')[2].partition('"')[0]
    queue.reload(queue.firing)
    form = {"all": "1", "expected": "8", "shown": name, "confirm": "orders"}

    answer = operator.post(path, data=form | {"csrf": token(operator)})

    assert "8 messages deleted." in answer.text
    assert left(queue) == [0, 1, 2, 3]


@pytest.mark.parametrize(("action", "most"), [("sweep", 4), ("redrive", 8)])
def test_what_follows_a_rule_changes_no_more_than_was_shown(
    operator, store, queue, monkeypatch, action, most
):
    """Messages that become stuck, or come to the sideline, while it begins."""
    path = f"/api/queues/orders/actions/{action}"
    if action == "redrive":
        queue.sideline(queue.fire(8))
    backdate(store, 100_000)
    calls = []

    def happens():
        # The first call counts, and the second one acts.
        calls.append(1)
        if len(calls) == 2 and action == "sweep":
            queue.fire("all")
            backdate(store, 100_000)
        elif len(calls) == 2:
            queue.sideline(queue.firing)

    count = operator.get(path).json()["messages"]
    before(monkeypatch, Queue, {"redrive": "choose"}.get(action, action), happens)
    headers = {"X-CSRF-Token": token(operator)}
    answer = operator.post(path, json={"expected": count}, headers=headers)

    assert (count, answer.json()["messages"]) == (most, most)


def test_a_redrive_leaves_what_comes_back_while_its_job_begins(operator, store, monkeypatch):
    """Another redrive of the same ones moves one, which fails again."""
    made = make_filled(store, 3, each=1)
    made.sideline(made.fire(3))
    (first, *_) = made.peek(3, magazine="sideline").column("_message_id").to_pylist()

    def move_and_fail():
        assert made.choose(ids=[first]).requeue() == 1
        made.sideline(made.fire(1))

    before(monkeypatch, jobs, "count", move_and_fail)
    path = "/api/queues/orders/actions/redrive"
    count = operator.get(path, params={"rate": "1000"}).json()
    asked = {"rate": "1000", "expected": 3, "shown": count["shown"], "confirm": "orders"}

    job = operator.post(path, json=asked, headers={"X-CSRF-Token": token(operator)}).json()["job"]
    monkeypatch.undo()
    Retries(store.catalog, store.storage).run(["orders"], job)

    assert left(made) == [1, 2]
    (act,) = [each for each in store.view("acts").to_pylist() if each["verb"] == "shovel"]
    assert json.loads(act["chosen"])["rate"] == 1000.0
