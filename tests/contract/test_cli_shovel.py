"""`ignis shovel` moves the sideline at once or as a job; `ignis jobs` and `cancel` follow it."""

import pytest

from ignis_cli import commands_shovel
from ignis_cli.counting import bar
from queue_core.errors import CatalogUnavailable
from queue_core.upkeep.tasks.shovel import Retries
from tests.command_line import answer, refusal
from tests.factories import drop, make_queue, numbers_of, orders


@pytest.fixture
def queue(store):
    queue = make_queue(store)
    make_queue(store, "other")
    queue.load(orders(6))
    queue.sideline(queue.fire("all"))
    return queue


def test_a_dry_run_counts(ignis, queue):
    asked = ["--json", "shovel", "orders", "--dry-run"]

    assert answer(ignis(*asked)) == [{"queue": "orders", "dry_run": True, "would_move": 6}]
    assert answer(ignis(*asked, "--where", "number < 2", "--to", "other"))[0]["would_move"] == 2
    assert ignis("shovel", "orders", "--dry-run").stdout == (
        "6 messages would go from the sideline of orders back to main\n"
    )
    assert queue.browse().num_rows == 0


def test_messages_go_to_another_queue(ignis, store, queue):
    done = ignis("shovel", "orders", "--to", "other", "--limit", 2, "--rate", 100)

    assert done.stdout == "2 messages are in other\n"
    assert numbers_of(store.queue("other").browse()) == [0, 1]
    assert "did you mean 'other'" in refusal(ignis("shovel", "orders", "--to", "othr"))


def test_a_job_is_followed_to_its_end(ignis, store, queue):
    (row,) = answer(ignis("--json", "shovel", "orders", "--to", "other", "--wait"))

    assert (row["state"], row["moved"], row["total"], row["error"]) == ("done", 6, 6, None)
    (listed,) = answer(ignis("--json", "jobs", "orders"))
    assert (listed["job"], listed["target"], listed["moved"]) == (row["job"], "other", 6)
    assert row["job"] in ignis("jobs").stdout


def test_a_job_is_left_to_others_and_cancelled(ignis, store, queue):
    (started,) = answer(ignis("--json", "shovel", "orders", "--background"))
    job = started["job"]

    cancelled = {"job": job, "cancelled": True, "state": "cancelled"}
    assert answer(ignis("--json", "cancel", job)) == [cancelled]
    again = ignis("cancel", job)
    assert again.exit_code == 1
    assert again.stdout.endswith("had ended before: it is cancelled; 0 of 6 messages had moved\n")
    assert answer(ignis("--json", "jobs"))[0]["state"] == "cancelled"
    assert "no such job" in refusal(ignis("cancel", "nope"))
    assert queue.browse().num_rows == 0


def test_a_job_for_which_only_dead_messages_match_says_so(ignis, queue):
    ids = queue.peek(4, magazine="sideline").column("_message_id")
    queue.choose(ids=ids).requeue()
    queue.choose(ids=ids).sideline("by hand")

    told = ignis("shovel", "orders", "--reason", "by hand", "--background")

    assert told.stdout.endswith("will move 0 messages to orders\n")
    assert told.stderr == "ignis: 4 dead messages match: use --force\n"
    forced = ignis("shovel", "orders", "--reason", "by hand", "--background", "--force")
    assert forced.stdout.endswith("will move 4 messages to orders\n")


def test_a_job_that_fails_ends_with_1(ignis, store, queue, monkeypatch):
    real = type(queue).start_shovel

    def and_deactivate(self, *args, **how):
        job = real(self, *args, **how)
        store.queue("other").admin.deactivate()
        return job

    monkeypatch.setattr(type(queue), "start_shovel", and_deactivate)
    done = ignis("shovel", "orders", "--to", "other", "--wait")
    assert done.exit_code == 1
    assert "is failed: 0 messages are in other: queue 'other' was deactivated" in done.stdout


def test_a_job_whose_queue_is_dropped_meanwhile_is_refused(ignis, queue, monkeypatch):
    real = type(queue).start_shovel

    def and_drop(self, *args, **how):
        job = real(self, *args, **how)
        drop(queue)
        return job

    monkeypatch.setattr(type(queue), "start_shovel", and_drop)
    refused = refusal(ignis("shovel", "orders", "--background"))
    assert "was dropped, and the job with it" in refused


def test_messages_without_room_are_not_taken_for_dead_ones(ignis, queue):
    queue.choose(queue.browse(magazine="sideline").column("_message_id")[:2]).requeue()
    queue.admin.change_settings(max_size=2)

    full = ignis("shovel", "orders")
    assert (full.stdout, full.stderr) == ("0 messages are back in orders\n", "")
    queue.choose("all", magazine="main").sideline("dead now")
    queue.load(orders(2, 6))
    assert "2 dead messages match: use --force" in ignis("shovel", "orders").stderr


def test_a_job_that_is_not_followed_during_an_outage_is_named(ignis, store, queue, monkeypatch):
    """Whoever repeats the command would start another one."""

    def gone(*_):
        raise CatalogUnavailable("the server is away; nothing was changed")

    monkeypatch.setattr(Retries, "run", gone)
    said = ignis("shovel", "orders", "--to", "other", "--wait")

    (job,) = store.view("jobs").column("job").to_pylist()
    assert said.exit_code == 2
    assert f"end it with: ignis cancel {job}" in said.stderr
    assert "the server is away" in said.stderr


def test_there_is_one_way_to_wait(ignis, queue):
    assert "use one of --wait" in refusal(ignis("shovel", "orders", "--wait", "--dry-run"))


def test_a_reason_a_selector_and_a_rate_go_together(ignis, store, queue):
    queue.shovel()
    firing = queue.fire("all")
    queue.sideline(firing.ids.slice(0, 4), reason="Timeout: the card service")
    queue.sideline(firing.ids.slice(4), reason="no such customer")
    chosen = ["orders", "--reason", "CARD service", "--where", "number >= 2", "--rate", 100]
    assert ignis("shovel", *chosen, "--dry-run").stdout == (
        "2 messages would go from the sideline of orders back to main\n"
    )
    assert "is done: 2 messages are in orders" in ignis("shovel", *chosen, "--wait").stdout
    again = ignis("shovel", *chosen, "--wait")
    assert (again.exit_code, "is done: 0 messages" in again.stdout) == (1, True)
    assert store.view("jobs").column("by_id").to_pylist() == [True, True]
    queue.choose("all", magazine="sideline").requeue()
    queue.choose("all", magazine="main").sideline("card service again")

    none = ignis("shovel", *chosen, "--dry-run")
    assert none.stdout.startswith("0 messages would go from the sideline of orders")
    assert "4 dead messages match: use --force" in none.stderr


def test_the_time_that_is_left_is_known_from_the_beginning(ignis, queue, monkeypatch):
    shown = []
    monkeypatch.setattr(commands_shovel, "bar", lambda text, _: shown.append(text) or bar("", 1))
    ignis("shovel", "orders", "--wait", "--rate", 3, "--limit", 3)
    assert shown[0].endswith(", 1 s at its rate")
