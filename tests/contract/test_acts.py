"""Acts: who did what by hand, by any way, in the transaction that did it."""

import json
from functools import partial
from getpass import getuser
from socket import gethostname

import pytest
from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.database import Catalog
from queue_core.catalog.record_tables import acts as rows
from queue_core.catalog.records import acts
from queue_core.catalog.records.acts import DOER, Doer
from queue_core.errors import CatalogUnavailable, Invalid
from queue_core.selection import rounds
from queue_core.upkeep.tasks.purge import purge
from queue_core.values.address import Address
from tests.command_line import answer, runner
from tests.dump import dump, log_earlier
from tests.factories import drop, make_filled, make_queue, orders
from tests.waiting import all_at_once


def acts_of(store, queue=None):
    """The acts after the creation of queues, in order."""
    return [row for row in store.view("acts", queue).to_pylist() if row["verb"] != "create"]


def verbs_of(store, queue=None):
    return [row["verb"] for row in acts_of(store, queue)]


def in_small_rounds(monkeypatch):
    monkeypatch.setattr(rounds, "PART_SLICES", 1)
    monkeypatch.setattr(rounds, "PART_MESSAGES", 1)


def test_an_act_says_who_did_what_to_how_many(store):
    queue = make_filled(store, 10)
    other = make_filled(store, 3, name="returns")
    queue.choose("all", selector="number < 4").sideline("odd")
    queue.shovel(3, selector="number < 3", force=True)
    other.choose(other.choose("all").ids[:2]).delete()

    created, _, sidelined, shovelled, deleted = store.view("acts").to_pylist()
    assert (created["verb"], created["queue"], created["messages"]) == ("create", "orders", None)
    assert (sidelined["selector"], sidelined["messages"]) == ("number < 4", 4)
    assert json.loads(sidelined["chosen"]) == {"ids": "all", "reason": "odd"}
    assert (shovelled["verb"], shovelled["messages"]) == ("shovel", 3)
    assert json.loads(shovelled["chosen"]) == {"limit": 3, "force": True}
    assert (deleted["verb"], deleted["queue"], deleted["messages"]) == ("delete", "returns", 2)
    assert len(json.loads(deleted["chosen"])["ids"].split(", ")) == 2
    for row in (created, sidelined, shovelled, deleted):
        assert (row["who"], row["host"], row["by"]) == (getuser(), gethostname(), "python")
        assert row["begun_at"] <= row["ended_at"]
        assert row["error"] is None
    assert verbs_of(store, "orders") == ["sideline", "shovel"]


def test_messages_are_counted_also_in_an_act_that_begins_with_another_change(store):
    """At the age of its own expiry, the queue is deactivated first."""
    queue = make_filled(store, 3, message_expiry=0.001, queue_expiry=0.001)

    assert queue.admin.expire() == 3
    (row,) = acts_of(store)
    assert (row["verb"], row["messages"]) == ("expire", 3)


def test_an_expiry_counts_no_messages_that_are_only_taken_in(store):
    topic = make_queue(store, log="7 days")
    reader = store.subscribe("billing", to="orders", message_expiry=3600)
    topic.load(orders(3))
    log_earlier(store, 3601, "loaded_at", "logged_at")
    assert reader.admin.expire() == 3

    (expired,) = acts_of(store, "billing")[1:]
    assert (expired["verb"], expired["messages"]) == ("expire", 3)


def test_what_changes_nothing_is_no_act(store):
    queue = make_filled(store, 3)
    before = dump(store)

    assert (queue.sweep(), queue.shovel(), queue.admin.expire()) == (0, 0, 0)
    assert queue.shovel(dry_run=True, force=True) == 0
    assert queue.choose("all", selector="number > 99").delete() == 0
    for refused in (
        lambda: queue.admin.change_settings(nothing=1),
        queue.admin.drop,
        lambda: store.admin.cancel("nosuch"),
        lambda: queue.shovel(to="nosuch"),
        lambda: queue.edit(queue.choose("all").ids[0].as_py(), {"number": 5}),
    ):
        with pytest.raises(Invalid, match=r"nothing|in use|no such|no queue|wait"):
            refused()
    make_queue(store, exist_ok=True)
    assert dump(store) == before


def test_what_consumers_and_side_tasks_do_is_no_act(store):
    queue = make_filled(store, 4, message_expiry=0.001)
    queue.delete(queue.fire(1))
    queue.sideline(queue.fire(1), "broken")
    with store.side_tasks():
        pass
    assert acts_of(store) == []


def test_each_way_of_an_administrator_is_an_act(store):
    queue = make_filled(store, 4)
    queue.admin.pause()
    # It is paused already.
    queue.admin.pause()
    queue.admin.resume()
    queue.admin.change_settings(concurrency=3)
    assert queue.admin.scale(-1) == 2
    queue.choose("all").sideline()
    job = queue.start_shovel(force=True, rate=5.0)
    store.admin.cancel(job)
    edited = queue.choose("all").ids[0].as_py()
    queue.edit(edited, {"customer": "secret"})
    breaker = store.admin.breaker("hooks")
    breaker.open()
    breaker.release()
    store.admin.fsck(repair=True, progress=lambda *_: None)
    store.admin.accept_clock()
    drop(queue)

    found = acts_of(store)
    assert [row["verb"] for row in found] == [
        "pause",
        "resume",
        "set",
        "scale",
        "sideline",
        "shovel",
        "cancel",
        "edit",
        "breaker open",
        "breaker auto",
        "fsck",
        "clock",
        "deactivate",
        "drop",
    ]
    by_verb = {row["verb"]: row for row in found}
    chosen = {verb: json.loads(row["chosen"]) for verb, row in by_verb.items()}
    assert chosen["fsck"] == {"repair": True}
    assert chosen["set"] == {"concurrency": 3}
    assert chosen["shovel"] == {"force": True, "rate": 5.0, "job": job, "total": 4}
    assert chosen["edit"] == {"ids": edited, "columns": "customer"}
    assert chosen["breaker open"] == {"breaker": "hooks"}
    # The queue is gone, and its acts are not.
    assert (by_verb["drop"]["queue"], by_verb["drop"]["messages"]) == ("orders", 4)
    assert by_verb["clock"]["queue"] is None
    assert all(row["ended_at"] is not None for row in found)


def test_the_command_line_says_so(store):
    queue = make_filled(store, 3)
    ignis = runner(store.address)
    answer(ignis("--json", "pause", "orders"))
    answer(ignis("--json", "delete", "orders", "--all", "--yes"))
    queue.admin.resume()

    assert [(row["verb"], row["by"]) for row in acts_of(store)] == [
        ("pause", "command line"),
        ("delete", "command line"),
        ("resume", "python"),
    ]
    (shown,) = answer(ignis("--json", "log", "orders", "--last", "1"))
    assert shown["verb"] == "resume"


def test_what_is_taken_by_hand_is_an_act_and_a_cancel_belongs_to_its_queue(store):
    queue = make_filled(store, 6)
    ignis = runner(store.address)
    answer(ignis("--json", "fire", "orders", "--count", "2", "--delete", "--where", "number < 4"))
    queue.sideline(queue.fire(2, selector="number >= 4"), reason="no stock")
    answer(ignis("--json", "shovel", "orders", "--reason", "STOCK", "--force", "--limit", "1"))
    job = queue.start_shovel(rate=1, force=True)
    answer(ignis("--json", "cancel", job))
    assert ignis("--json", "cancel", job).exit_code == 1
    assert ignis("--json", "shovel", "orders", "--reason", "no such").exit_code == 1

    taken, shovelled, _, cancelled = acts_of(store, "orders")
    assert (taken["verb"], taken["selector"], taken["messages"]) == (
        "fire and delete",
        "number < 4",
        2,
    )
    chosen = json.loads(shovelled["chosen"])
    assert (chosen["reason"], chosen["limit"], "ids" in chosen) == ("STOCK", 1, False)
    assert (shovelled["messages"], cancelled["verb"]) == (1, "cancel")


def test_a_long_list_of_ids_is_cut(store):
    queue = make_filled(store, 50)
    queue.start_shovel(ids=queue.choose("all").ids.to_pylist(), force=True)

    ids = json.loads(acts_of(store)[-1]["chosen"])["ids"]
    assert ids.endswith(" and 30 more")
    assert ids.count(", ") == 19


def test_an_act_that_is_interrupted_shows_how_far_it_came(store, monkeypatch):
    queue = make_filled(store, 5)
    in_small_rounds(monkeypatch)
    calls, stop = [], 3

    def fail_later(_):
        calls.append(1)
        if len(calls) == stop:
            raise CatalogUnavailable("the network is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "give_way", fail_later)
        with pytest.raises(CatalogUnavailable):
            queue.choose("all").sideline()
        patched.setattr(acts, "end", lambda *_: None)
        calls.clear()
        stop = 1
        with pytest.raises(CatalogUnavailable):
            queue.choose("all", magazine="main").sideline()

    failed, killed = acts_of(store)
    assert (failed["messages"], failed["error"]) == (3, "the network is gone")
    assert (killed["messages"], killed["error"], killed["ended_at"]) == (1, None, None)
    assert failed["ended_at"] is not None


def test_threads_of_one_act_share_its_row_and_two_acts_do_not(store):
    """A shovel on a server has several threads."""
    queue = make_filled(store, 400, shards=8, shovel_concurrency=4)
    other = make_filled(store, 20, name="returns")
    queue.choose("all").sideline()
    other.choose("all").sideline()
    all_at_once(*(partial(each.shovel, force=True) for each in (queue, other)))

    found = {row["queue"]: row for row in acts_of(store) if row["verb"] == "shovel"}
    assert {name: row["messages"] for name, row in found.items()} == {"orders": 400, "returns": 20}
    assert len(acts_of(store)) == 4


def test_a_breaker_with_the_name_of_a_queue_is_in_its_log(store):
    make_filled(store, 2)
    for name in ("orders", "hooks"):
        store.admin.breaker(name).open()
    assert [(act["verb"], act["queue"]) for act in acts_of(store)] == [
        ("breaker open", "orders"),
        ("breaker open", None),
    ]


def test_the_person_of_a_context(store):
    queue = make_filled(store, 2)
    token = DOER.set(Doer("console", "ann" * 100, "1234"))
    try:
        queue.admin.pause()
    finally:
        DOER.reset(token)
    (act,) = acts_of(store)
    assert (act["act"], act["by"], act["who"]) == ("1234", "console", ("ann" * 100)[:200])


@pytest.mark.parametrize(
    ("by", "who"), [("carol", "carol as {}"), ("", "{}"), (getuser(), "{}"), (None, "{}")]
)
def test_the_person_who_uses_sudo(store, monkeypatch, by, who):
    monkeypatch.setattr(acts, "user", acts.user.__wrapped__)
    if by is None:
        monkeypatch.delenv("SUDO_USER", raising=False)
    else:
        monkeypatch.setenv("SUDO_USER", by)
    make_filled(store, 2).admin.pause()
    assert acts_of(store)[0]["who"] == who.format(getuser())


def test_a_restore_is_an_act_of_the_restored_store(store, tmp_path):
    queue = make_filled(store, 2)
    queue.admin.pause()
    store.admin.backup(tmp_path / "backup")
    address = Address.of(tmp_path / "elsewhere")
    Store.restore(tmp_path / "backup", tmp_path / "elsewhere")

    with Store(address) as restored:
        assert verbs_of(restored) == ["pause", "restore"]
        (act,) = acts_of(restored)[1:]
        assert json.loads(act["chosen"])["folder"] == str(tmp_path / "backup")
        assert restored.admin.fsck().num_rows == 0


def test_old_acts_are_forgotten(store):
    queue = make_filled(store, 1)
    queue.admin.pause()
    old = update(rows).where(rows.c.verb == "pause")
    kept = int(acts.KEPT_SECONDS * 1e6)
    store.catalog.write(lambda c: c.execute(old.values(begun_at=rows.c.begun_at - kept)))
    queue.admin.resume()
    purge(store.catalog)
    assert verbs_of(store) == ["resume"]


def test_an_altered_act_is_found(store):
    make_filled(store, 1).admin.pause()
    by_another = update(rows).where(rows.c.verb == "pause").values(who="somebody")
    store.catalog.write(lambda c: c.execute(by_another))
    (finding,) = store.admin.fsck().to_pylist()
    assert (finding["invariant"], finding["table"]) == ("I1", "acts")
