"""Commands that read messages elsewhere, or again."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.command_line import answer, refusal
from tests.dump import log_earlier
from tests.factories import make_filled, numbers_of, orders


@pytest.fixture
def topic(store):
    queue = make_filled(store, 10, log="7 days", message_expiry=1_800)
    log_earlier(store, 3_600)
    log_earlier(store, 3_600, "loaded_at")
    queue.load(orders(5, 10))
    return queue


def test_a_subscription_is_created(ignis, store, topic):
    said = ignis("subscribe", "billing", "orders", "--start", "earliest", "--set", "retry=none")
    assert said.stdout == "queue billing was created, a subscription to orders\n"
    assert store.queue("billing").info.settings.retry is None
    time = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    made = answer(ignis("subscribe", "late", "orders", "--start", time, "--json"))
    assert made == [{"queue": "late", "to": "orders"}]
    assert len(store.queue("late").browse()) == 5
    assert refusal(ignis("subscribe", "third", "orders", "--start", "2026-07-11")).startswith(
        "ignis: start=datetime.datetime(2026, 7, 11, 0, 0): use"
    )


def test_a_replay_is_counted_and_created(ignis, store, topic):
    counted = answer(ignis("replay", "orders", "again", "--dry-run", "--json"))
    assert [(row["messages"], row["expired"], row["dry_run"]) for row in counted] == [
        (15, 10, True)
    ]
    said = ignis("replay", "orders", "again", "--dry-run").stdout
    assert said.startswith("queue again would have 15 messages, ")
    assert said.endswith(", of which 10 have expired\n")
    assert store.queues() == ["orders"]
    since = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    said = ignis("replay", "orders", "again", "--until", since)
    assert said.stdout == "queue again was created, a replay of orders\n"
    assert numbers_of(store.queue("again").browse()) == list(range(10))


def test_a_clone_is_counted_and_created(ignis, store, topic):
    assert "copy would have 15 messages, " in ignis("clone", "orders", "copy", "--dry-run").stdout
    assert answer(ignis("clone", "orders", "copy", "--json")) == [{"queue": "copy"}]
    assert len(store.queue("copy").browse()) == 15


def test_a_snapshot_is_kept_and_a_seek_goes_back_to_it(ignis, store, topic):
    reader = store.subscribe("billing", to="orders", start="earliest")
    said = ignis("snapshot", "billing", "before", "--dry-run").stdout
    assert said.startswith("snapshot before of billing would have 15 messages, ")
    assert "has 15 messages" in ignis("snapshot", "billing", "before", "--keep", "2h").stdout
    [row] = answer(ignis("snapshot", "billing", "--json"))
    assert (row["snapshot"], row["messages"]) == ("before", 0)
    reader.delete(reader.fire(7))
    assert "pause it before you seek" in refusal(ignis("seek", "billing", "before", "--yes"))
    reader.admin.pause()

    told = answer(ignis("seek", "billing", "before", "--dry-run", "--json"))
    assert [(row["messages"], row["removed"]) for row in told] == [(15, 0)]
    assert ignis("seek", "billing", "latest", input="n\n").exit_code == 1
    assert len(reader.browse()) == 8
    asked = ignis("seek", "billing", "earliest", input="y\n")
    assert "remove 8 messages of billing, and move it to earliest?" in asked.output
    assert "queue billing has 15 messages, " in asked.stdout
    assert asked.stdout.endswith("; 8 were removed\n")
    assert answer(ignis("seek", "billing", "before", "--yes", "--json"))[0]["messages"] == 15
    reader.fire(1, timeout=0)
