"""Actions: each says how many messages it means, asks where it destroys, and is logged."""

import json
import re
import socket
from pathlib import Path

import pytest
from sqlalchemy import update

from ignis_console.actions import ACTIONS
from queue_core import CatalogUnavailable, DamagedSegment
from queue_core.catalog.database import Catalog
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.records import acts
from queue_core.queue.admin import QueueAdmin
from queue_core.selection import rounds
from queue_core.upkeep.tasks.shovel import Retries
from tests.console.clients import log_in, logged, token
from tests.dump import backdate
from tests.factories import make_queue, numbers_of, orders
from tests.job_steps import run_job


def act(client, name, *, api=True, **fields):
    """Do what a person does: look at the number, then confirm it."""
    path = f"/queues/orders/actions/{name}"
    shown = client.get("/api" + path, params=fields).json()
    form = {"expected": shown["messages"], "csrf": token(client)} | fields
    if ACTIONS[name].destroys:
        form.setdefault("confirm", "orders")
    if api:
        done = client.post("/api" + path, json=form, headers={"X-CSRF-Token": form["csrf"]})
        return shown, done.json()
    done = client.post(path, data=form)
    return shown, done


def counts(queue):
    row = queue.store.view("queues", queue.name).to_pylist()[0]
    return row["waiting"], row["in_flight"], row["sidelined"]


def test_pause_and_resume(operator, queue):
    shown, _ = act(operator, "pause")

    assert shown["messages"] == 6
    assert queue.refresh().info.is_paused
    assert "Resume…" in operator.get("/queues/orders").text
    (paused,) = operator.get("/api/problems", params={"kind": "paused"}).json()["groups"]
    assert [each["queue"] for each in paused["problems"]] == ["orders"]
    act(operator, "resume")
    assert not queue.refresh().info.is_paused


def test_scale(operator, queue):
    shown, _ = act(operator, "scale", concurrency=3)

    assert "from 8 to 3" in shown["text"]
    assert queue.refresh().info.settings.concurrency == 3
    for wrong in ("101", "-1", "x", "1.5"):
        path = "/api/queues/orders/actions/scale"
        assert operator.get(path, params={"concurrency": wrong}).status_code == 400


def test_a_redrive_leaves_alone_what_failed_again_since_it_was_counted(operator, queue):
    """As when two persons look at one group, and both redrive it."""
    path = "/queues/orders/actions/redrive"
    failed = numbers_of(queue.browse(magazine="sideline"))
    for fields in ({}, {"rate": 1000.0}):
        shown = operator.get("/api" + path, params=fields).json()
        assert shown["messages"] == len(failed) == 2
        queue.choose("all", magazine="sideline").requeue()
        queue.sideline(queue.fire(2, selector=f"number in {tuple(failed)}"))
        form = {"expected": 2, "shown": shown["shown"], "csrf": token(operator)} | fields
        done = operator.post("/api" + path, json=form, headers={"X-CSRF-Token": form["csrf"]})
        assert done.json()["messages"] == 0
        assert sorted(numbers_of(queue.browse(magazine="sideline"))) == failed


def test_a_count_of_a_queue_changes_nothing_for_its_clone(operator, queue):
    """A clone has messages with the same ids."""
    queue.clone("copy")
    shown = operator.get("/api/queues/orders/actions/delete", params={"all": "1"}).json()
    form = {"all": "1", "expected": 99, "confirm": "copy", "shown": shown["shown"]}
    headers = {"X-CSRF-Token": token(operator)}

    refused = operator.post("/api/queues/copy/actions/delete", json=form, headers=headers)
    assert (refused.status_code, counts(queue)) == (409, (6, 2, 2))
    assert "no longer knows which messages were shown" in refused.json()["message"]


def test_redrive(operator, queue):
    shown, done = act(operator, "redrive", limit=1)

    assert (shown["messages"], done["messages"]) == (1, 1)
    assert counts(queue) == (7, 2, 1)
    assert act(operator, "redrive")[1]["messages"] == 1
    assert act(operator, "redrive")[1]["messages"] == 0
    for rate in ["0", "-1", "nan", "inf", "x"]:
        refused = operator.get("/api/queues/orders/actions/redrive", params={"rate": rate})
        assert refused.status_code == 400
        assert "more than 0" in refused.json()["message"]
    refused = operator.get("/api/queues/orders/actions/redrive", params={"to": "ordres"}).json()
    assert "did you mean 'orders'" in refused["message"]


def test_dead_messages_that_match_are_named_and_the_button_waits_for_them(operator, queue):
    queue.choose("all", magazine="main").sideline("gone")
    group = {"group": "1", "kind": "by_hand", "fingerprint": "gone"}
    few = group | {"selector": "number >= 8"}
    many = operator.get("/queues/orders/actions/redrive", params=group)
    assert "6 dead ones match: tick “Dead messages too”" in many.text
    assert re.search(r'<button class="primary" disabled>Redrive', many.text)

    shown, done = act(operator, "redrive", **few, force="1")

    dead = shown["messages"]
    assert 0 < dead < 6
    assert "dead ones" not in shown["text"]
    assert (done["messages"], counts(queue)) == (dead, (dead, 2, 8 - dead))


def test_one_tenant_of_a_reason_goes_to_a_queue_at_a_rate(operator, store, queue):
    other = make_queue(store, "other")
    chosen = sorted(queue.choose("all", magazine="sideline").ids.to_pylist())
    number = queue.choose(chosen[0]).rows().column("number")[0].as_py()
    fields = GROUP | {"selector": f"number = {number}", "ids": " ".join(map(str, chosen))}
    fields |= {"rate": "5", "to": "other"}

    shown, done = act(operator, "redrive", **fields)

    assert shown["messages"] == 1
    assert "to queue other. At 5/s, this takes 0.2 s. A process" in shown["text"]
    (job,) = store.view("jobs").to_pylist()
    assert (job["who"], job["rate"], job["by_id"], job["target"]) == ("console", 5.0, True, "other")
    assert done["job"] == job["job"]
    run_job(store, job["job"])
    assert other.browse().column("number").to_pylist() == [number]


def test_a_redrive_with_a_rate_is_followed_and_cancelled(operator, store, queue):
    _, done = act(operator, "redrive", rate="1")
    job = done["job"]

    assert done["text"] == f"Redrive {job} of 2 messages was started, as a job."
    (action,) = [each.id for each in operator.app.state.console.log.latest()]
    after = f"/queues/orders?done={action}"
    assert f"Redrive {job} waits for a process" in operator.get(after).text
    Retries(store.catalog, store.storage).run(["orders"], job)
    operator.app.state.console.changed("orders")
    for path in (after, "/redrives"):
        page = operator.get(path).text
        assert f'<progress max="2" value="1" aria-label="Redrive {job}: 1 of 2 messages">' in page
        assert f"/queues/orders/actions/cancel?job={job}" in page
        assert "at most 1/s · 1.0 s left" in page
    assert f"Redrive {job} is running" in operator.get(after).text

    shown, done = act(operator, "cancel", job=job)

    assert shown["text"] == "It has moved 1 message. 1 message would stay in the sideline."
    assert done["text"] == "The redrive is cancelled; it had moved 1 message."
    assert "cancelled: it has moved 1 of 2 messages." in operator.get(after).text
    assert counts(queue) == (7, 2, 1)
    path = "/api/queues/orders/actions/cancel"
    for wrong, why in ((job, "has ended: it is cancelled"), ("nope", "no such redrive")):
        assert why in operator.get(path, params={"job": wrong}).json()["message"]


def test_who_holds_messages_in_flight_is_said_and_they_can_be_taken_back(operator, queue):
    page = operator.get("/queues/orders").text
    assert "messages?state=in+flight&amp;consumer=till" in page
    assert socket.gethostname() in page
    for action, fields in (("sweep", {"older_than": 0}), ("reload", {"all": "1"})):
        path = f"/queues/orders/actions/{action}"
        text = operator.get("/api" + path, params=fields).json()["text"]
        assert "2 messages are held by till (process" in text
        assert "which is alive; take them back with: ignis reload orders --consumer till" in text
        link = "/queues/orders/actions/reload?all=1&amp;consumer=till"
        assert link in operator.get(path, params=fields).text


def test_sweep_takes_messages_of_dead_consumers(operator, store, queue):
    assert act(operator, "sweep", older_than=0)[0]["messages"] == 0
    backdate(store, 3600)
    silent = update(consumers).values(heartbeat_at=consumers.c.heartbeat_at - 3_600_000_000)
    store.catalog.write(lambda connection: connection.execute(silent))

    shown, done = act(operator, "sweep")

    assert (shown["messages"], done["messages"]) == (2, 2)
    assert counts(queue) == (6, 0, 4)


def test_sideline_by_selector_and_redrive_by_group(operator, queue):
    waiting = sorted(queue.peek(100).column("number").to_pylist())
    condition = f"number = {waiting[0]}"
    shown, done = act(operator, "sideline", selector=condition, reason_text="looks wrong")
    group = {"group": "1", "kind": "by_hand", "reason": "looks wrong"}

    assert (shown["messages"], done["messages"]) == (1, 1)
    assert counts(queue) == (5, 2, 3)
    assert act(operator, "redrive", **group, force="1")[1]["messages"] == 1
    assert counts(queue) == (6, 2, 2)


def test_reload_by_id_from_a_named_consumer(operator, queue):
    assert act(operator, "reload", all="1")[0]["messages"] == 0

    _, done = act(operator, "reload", all="1", consumer="till")

    assert done["messages"] == 2
    assert counts(queue) == (8, 0, 2)


def test_delete_by_id_needs_the_name_of_the_queue(operator, queue):
    ids = queue.peek(3).column("_message_id").to_pylist()
    fields = {"ids": " ".join(map(str, ids))}
    path = "/api/queues/orders/actions/delete"
    headers = {"X-CSRF-Token": token(operator)}

    for confirm in ("", "order", "ORDERS", None):
        form = fields | {"expected": 3, "confirm": confirm}
        assert operator.post(path, json=form, headers=headers).status_code == 400
    assert counts(queue) == (6, 2, 2)
    shown, done = act(operator, "delete", **fields)

    assert (shown["messages"], done["messages"]) == (3, 3)
    assert counts(queue) == (3, 2, 2)


def test_messages_that_stay_are_said(operator, queue):
    shown, done = act(operator, "delete", all="1", magazine="both")

    assert shown["text"].startswith("8 messages would be deleted for good. 2 messages that you")
    assert done["messages"] == 8
    assert counts(queue) == (0, 2, 0)


def test_nothing_is_changed_if_there_are_more_messages_than_were_shown(operator, queue):
    path, csrf = "/queues/orders/actions/delete", token(operator)
    form = {"all": "1", "magazine": "main", "expected": "6", "confirm": "orders", "csrf": csrf}
    queue.load(orders(1, first=50))

    refused = operator.post(path, data=form, follow_redirects=False)
    page = operator.get(refused.headers["location"]).text

    # A reload of the page, and coming back to it, send no form.
    assert refused.status_code == 303
    assert "6 messages were shown, and now there are 7" in page
    assert 'name="expected" value="7"' in page
    assert counts(queue) == (7, 2, 2)
    as_script = operator.post("/api" + path, json=form, headers={"X-CSRF-Token": csrf})
    assert as_script.status_code == 409
    # Fewer are no surprise.
    assert operator.post(path, data=form | {"expected": "9"}).status_code == 200
    assert counts(queue) == (0, 2, 2)


def test_a_long_list_of_ids_is_refused_on_the_spot(operator, queue):
    """It does not fit into an address."""
    ids = queue.peek(5).column("_message_id").to_pylist()
    form = {"ids": " ".join(map(str, ids * 1000)), "csrf": token(operator)}
    form |= {"expected": "1", "confirm": "orders"}

    refused = operator.post("/queues/orders/actions/delete", data=form, follow_redirects=False)

    assert refused.status_code == 409
    assert "1 message was shown, and now there are 5; look again" in refused.text
    assert str(ids[0]) in refused.text


@pytest.mark.parametrize("name", ["pause", "resume", "scale"])
def test_a_busy_queue_can_be_paused(operator, queue, name):
    """These acts concern the queue, and no messages that were counted."""
    queue.load(orders(5, first=50))
    fields = {"concurrency": "3"} if name == "scale" else {}
    form = fields | {"expected": "6", "csrf": token(operator)}

    answer = operator.post(f"/queues/orders/actions/{name}", data=form)

    assert answer.status_code == 200
    assert "The " in re.search(r'class="notice"[^>]*>(.*?)<', answer.text)[1]


def test_no_action_runs_unseen(operator, queue):
    job = queue.start_shovel()
    for name in ACTIONS:
        known = {field.name for field in ACTIONS[name].fields}
        fields = {"concurrency": 1, "all": "1", "consumer": "till", "job": job, "breaker": "bank"}
        fields = {key: fields[key] for key in fields.keys() & known} | {"confirm": "orders"}
        headers = {"X-CSRF-Token": token(operator)}

        answer = operator.post(f"/api/queues/orders/actions/{name}", json=fields, headers=headers)

        assert answer.status_code == 400
        assert "expected" in answer.json()["message"]
        assert counts(queue) == (6, 2, 2)


def test_the_page_says_for_which_values_it_has_counted(operator, queue):
    """Also without script, where the fields can be edited beside an old count."""

    def counted(name, **fields):
        page = operator.get(f"/queues/orders/actions/{name}", params=fields).text
        found = re.search(r'<dl class="facts" id="counted">(.*?)</dl>', page, re.DOTALL)[1]
        names = re.findall(r"<dt>(.*?)</dt>", found)
        return dict(zip(names, re.findall(r"<dd[^>]*>(.*?)</dd>", found), strict=True))

    assert counted("sideline", selector="number < 5", reason_text="odd") == {
        "Selector": "number &lt; 5",
        "Reason": "odd",
    }
    assert counted("delete", all="1", magazine="main") == {
        "All messages": "yes",
        "Magazine": "main",
    }
    assert counted("scale", concurrency="3") == {"Concurrency": "3"}
    assert counted("redrive") == {"Every field": "empty"}


def test_an_action_without_a_choice_asks_for_one(operator, queue):
    for name in ["sideline", "cancel", "reload", "delete", "scale"]:
        page = operator.get(f"/queues/orders/actions/{name}")

        assert "Choose messages first" in page.text
        assert 'method="post" data-once' not in page.text


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "False", ""])
def test_no_does_not_mean_all(operator, queue, word):
    path = "/api/queues/orders/actions/delete"

    assert operator.get(path, params={"all": word}).json()["messages"] is None
    assert "Choose messages first" in operator.get(path[4:], params={"all": word}).text
    for value in (word, False, 0):
        form = {"all": value, "expected": 9, "confirm": "orders"}
        headers = {"X-CSRF-Token": token(operator)}
        assert operator.post(path, json=form, headers=headers).status_code == 400
    assert counts(queue) == (6, 2, 2)
    assert operator.get(path, params={"all": "yes"}).json()["messages"] == 8


GROUP = {"group": "1", "kind": "exception", "reason": "no such customer"}


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"ids": "x"}, "use whole numbers"),
        ({"ids": "-1"}, "use whole numbers"),
        ({"ids": "99999999999999999999"}, "use whole numbers"),
        (GROUP | {"ids": "9999999999999999999"}, "use whole numbers"),
        ({"ids": "5"}, "is not of queue 'orders'"),
        ({"selector": "nmber = 1"}, "did you mean 'number'?"),
        ({"all": "1", "ids": "5"}, "either all messages, or some"),
        ({"all": "1", "magazine": "elsewhere"}, "use both, main, sideline"),
        # What would be left out silently.
        ({"selector": "number > 0", "magazin": "sideline"}, "did you mean 'magazine'?"),
        ({"all": "1", "selectr": "number = 1"}, "did you mean 'selector'?"),
        ({"all": "maybe"}, "false"),
        (GROUP | {"all": "1"}, "either a group"),
        (GROUP | {"magazine": "main"}, "either a group"),
        ({"all": "1", "kind": "exception"}, "group=1"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_reason(operator, queue, fields, hint):
    path = "/api/queues/orders/actions/delete"
    form = fields | {"expected": "100", "confirm": "orders"}

    page = operator.get(path[4:], params=fields)
    shown = operator.get(path, params=fields)
    done = operator.post(path, json=form, headers={"X-CSRF-Token": token(operator)})

    assert (page.status_code, shown.status_code, done.status_code) == (400, 400, 400)
    assert 'role="alert"' in page.text
    assert hint in shown.json()["message"]
    assert shown.json() == done.json()
    assert counts(queue) == (6, 2, 2)


def test_the_page_after_an_action_says_what_was_done(operator, serve, queue):
    _, page = act(operator, "redrive", api=False)

    assert page.status_code == 200
    assert "2 messages redriven." in page.text
    # It may still be open after a restart.
    restarted = serve()
    log_in(restarted)
    act(restarted, "resume")
    assert "The queue is resumed." not in restarted.get(str(page.url)).text


def test_the_log_says_that_it_could_not_be_read(operator, queue, monkeypatch):
    act(operator, "redrive", **GROUP)

    def fail(*_):
        raise CatalogUnavailable("the database is down")

    monkeypatch.setattr(acts, "rows", fail)
    page = operator.get("/log").text
    assert "Only the actions of this console are shown: the database is down" in page
    assert "<td>redrive" in page
    monkeypatch.undo()
    page = operator.get("/log").text
    assert "Only the actions" not in page
    # Its acts are told once, by the name that other consoles show, with what was chosen.
    assert (page.count("<td>requeue"), page.count("<td>redrive")) == (1, 0)
    assert "no such customer" in page


def test_the_log_has_the_names_of_the_fields(operator, queue):
    act(operator, "redrive", **GROUP)
    act(operator, "sideline", selector="number > 0", reason_text="odd")
    act(operator, "sideline", all="no", selector="number > 0")
    act(operator, "sideline", all="1")
    queue.admin.change_settings(message_expiry=900)
    make_queue(queue.store, "grouped", key="customer", group="customer")

    shown = re.findall(r"<b>(.*?)</b> (.*?)</span>", operator.get("/log").text)
    # What was done in Python, by the names that it has there.
    by_python = [("key", "customer"), ("group", "customer"), ("message_expiry", "900")]
    assert [each for each in shown if each in by_python] == by_python
    shown = [each for each in shown if each[0] != "shards" and each not in by_python]
    assert shown == [
        ("All messages", "yes"),
        ("Selector", "number &gt; 0"),
        ("Selector", "number &gt; 0"),
        ("Reason", "odd"),
        ("Group of the sideline", "yes"),
        ("Kind", "exception"),
        ("First line of the reason", "no such customer"),
    ]


def test_each_action_is_logged_with_who_did_it(serve, queue, tmp_path, caplog):
    caplog.set_level("INFO", "ignis_console.action_log")
    file = tmp_path / "actions"
    client = serve(action_log=file)
    log_in(client)
    act(client, "sideline", selector="number >= 0", reason_text="<b>odd</b>")
    act(client, "pause")

    lines = [json.loads(line) for line in file.read_text().splitlines()]

    assert [(line["action"], line["who"], line["queue"], line["ended"]) for line in lines] == [
        ("sideline", "console", "orders", False),
        ("sideline", "console", "orders", True),
        ("pause", "console", "orders", False),
        ("pause", "console", "orders", True),
    ]
    assert lines[0]["id"] == lines[1]["id"] != lines[2]["id"]
    assert lines[0]["messages"] == 6
    assert lines[0]["chosen"] == {"selector": "number >= 0", "reason_text": "<b>odd</b>"}
    assert lines[0]["at"].startswith("20")
    assert lines[0]["address"] == "testclient"
    assert [json.loads(record.message) for record in caplog.records] == lines
    assert [entry["action"] for entry in logged(client)] == ["pause", "sideline"]
    assert "&lt;b&gt;odd&lt;/b&gt;" in client.get("/log").text


def test_an_action_that_fails_is_logged_as_failed(operator, store, queue, monkeypatch):
    def fail(self):
        raise CatalogUnavailable("the database is down")

    monkeypatch.setattr(QueueAdmin, "pause", fail)
    form = {"expected": "9", "csrf": token(operator)}

    assert operator.post("/queues/orders/actions/pause", data=form).status_code == 503
    (entry,) = logged(operator)
    assert (entry["messages"], entry["error"]) == (None, "the database is down")


def test_an_action_that_was_interrupted_has_no_end_in_the_log_of_the_next_console(
    operator, serve, queue, monkeypatch
):
    def killed(_):
        raise CatalogUnavailable("killed after the first round")

    monkeypatch.setattr(rounds, "PART_SLICES", 1)
    monkeypatch.setattr(rounds, "PART_MESSAGES", 1)
    monkeypatch.setattr(Catalog, "give_way", killed)
    monkeypatch.setattr(acts, "end", lambda *_: None)
    form = {"expected": "6", "csrf": token(operator), "selector": "number >= 0"}
    assert operator.post("/queues/orders/actions/sideline", data=form).status_code == 503

    after = serve()
    log_in(after)

    (entry,) = logged(after)
    assert (entry["action"], entry["who"], entry["messages"]) == ("sideline", "console", 1)
    assert entry["ended"] is False
    assert "no end in the log" in after.get("/log").text
    act(after, "resume")
    assert [each["action"] for each in logged(after)] == ["resume", "sideline"]


def test_a_repair_names_the_files_that_are_still_damaged(operator, store, queue, in_files):
    queue.load(orders(10, 100))
    (name,) = store.storage.list()
    file = Path(store.storage.folder, name)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedSegment):
        queue.fire("all")

    _, refused = act(operator, "repair", api=False)
    assert "0 messages put back, 10 in quarantine: " in refused.text
    assert name in refused.text
    assert "run `ignis repair orders`" in refused.text

    file.write_bytes(data)
    _, done = act(operator, "repair", api=False)
    assert "10 messages put back." in done.text
