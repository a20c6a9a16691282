"""The commands of a person on call: they count first, ask, and then act on exactly that."""

import json
import os
import re
import socket
from math import inf, nan

import pyarrow as pa
import pytest
import typer

from queue_core.selection import rounds
from tests.command_line import answer, refusal
from tests.factories import aside, main, make_filled, numbers_of, orders


@pytest.fixture
def queue(store):
    """Orders 0 to 3 in the sideline, 4 to 9 in main."""
    queue = make_filled(store, 10)
    queue.sideline(queue.fire(4).ids)
    return queue


def test_get_shows_messages_by_id_and_by_selector(ignis, queue):
    (two,) = answer(ignis("--json", "get", "orders", "--where", "number = 2"))

    assert (two["number"], two["customer"], two["_attempt"]) == (2, "customer-2", 1)
    both = answer(
        ignis("--json", "get", "orders", "--id", two["_message_id"], "--id", two["_message_id"] + 5)
    )
    assert sorted(row["number"] for row in both) == [2, 7]
    assert len(answer(ignis("--json", "get", "orders", "--all", "--magazine", "sideline"))) == 4
    assert "customer-2" in ignis("get", "orders", "--id", two["_message_id"]).stdout


def test_numbers_that_json_lacks_are_texts(ignis, store):
    made = store.create_queue(
        "odd", pa.schema([("x", pa.float64()), ("many", pa.list_(pa.float64()))]), shards=1
    )
    for number in (nan, inf, -inf):
        made.load([{"x": number, "many": [1.0, number]}])

    lines = ignis("--json", "get", "odd", "--all").stdout.splitlines()

    assert not any(re.search(r"[:[ ](NaN|-?Infinity)", line) for line in lines)
    texts = ["NaN", "Infinity", "-Infinity"]
    assert [json.loads(line)["x"] for line in lines] == texts
    assert [json.loads(line)["many"] for line in lines] == [[1.0, text] for text in texts]


def test_fire_takes_the_next_messages_until_they_are_put_back(ignis, queue):
    fired = ignis("--json", "fire", "orders", "-n", "2", "--where", "number > 4")

    rows = [json.loads(line) for line in fired.stdout.splitlines()]
    assert [row["number"] for row in rows] == [5, 6]
    assert sorted(numbers_of(queue.peek(10))) == [4, 7, 8, 9]
    hint = re.search(r"ignis (reload orders --all --consumer \S+)", fired.stderr)
    assert ignis(*hint[1].split(), "--yes").exit_code == 0
    assert sorted(numbers_of(queue.peek(10))) == [4, 5, 6, 7, 8, 9]


def test_fire_removes_what_it_has_printed_if_it_is_to(ignis, queue):
    fired = ignis("--json", "fire", "orders", "-n", "3", "--magazine", "sideline", "--delete")

    assert sorted(row["number"] for row in answer(fired)) == [0, 1, 2]
    assert fired.stderr == ""
    assert aside(queue) == [3]
    assert queue.choose("all").count() == 7
    assert answer(ignis("--json", "fire", "orders", "--where", "number > 100")) == []


def test_delete_asks_with_the_number_of_messages(ignis, queue):
    no = ignis("delete", "orders", "--where", "number < 6", input="n\n")
    assert no.exit_code == 1
    assert "delete 6 messages of orders for good? [y/N]" in no.stderr
    assert "nothing was changed" in no.stderr
    assert (main(queue), aside(queue)) == ([4, 5, 6, 7, 8, 9], [0, 1, 2, 3])

    yes = ignis("delete", "orders", "--where", "number < 6", input="y\n")
    assert yes.exit_code == 0
    assert yes.stdout.endswith("6 messages of orders deleted\n")
    assert (main(queue), aside(queue)) == ([6, 7, 8, 9], [])


def test_messages_that_come_back_while_the_question_waits_are_left_alone(ignis, queue, monkeypatch):
    firing = queue.fire(2)
    confirm = typer.confirm

    def asked(*args, **how):
        queue.reload(firing)
        queue.load(orders(2, 20))
        return confirm(*args, **how)

    monkeypatch.setattr(typer, "confirm", asked)
    done = ignis("delete", "orders", "--all", input="y\n")

    assert "delete 8 messages of orders for good, and leave 2 messages alone?" in done.stderr
    assert done.stdout.endswith("8 messages of orders deleted\n")
    assert main(queue) == [4, 5, 20, 21]


def test_without_somebody_to_ask_the_answer_must_be_given(ignis, queue):
    said = refusal(ignis("--json", "requeue", "orders", "--all"))
    assert said == "ignis: requeue 4 messages of orders: repeat the command with --yes"
    unanswered = ignis("requeue", "orders", "--all")
    assert unanswered.exit_code == 1
    assert unanswered.stderr.endswith("\nignis: standard input ended before an answer\n")
    assert aside(queue) == [0, 1, 2, 3]

    assert answer(ignis("--json", "requeue", "orders", "--all", "--yes")) == [{"requeued": 4}]
    assert answer(ignis("--json", "requeue", "orders", "--all")) == [{"requeued": 0}]
    assert numbers_of(queue.peek(20))[-4:] == [0, 1, 2, 3]


def test_sideline_takes_a_reason(ignis, queue):
    done = ignis("sideline", "orders", "--where", "number = 5", "--reason", "see ticket 7", "-y")

    assert done.stdout == "1 message of orders sidelined\n"
    assert aside(queue) == [0, 1, 2, 3, 5]
    assert queue.failures().column("reason").to_pylist()[-1] == "see ticket 7"


def test_reload_takes_messages_from_a_consumer_by_name(ignis, store, queue):
    queue.fire(2, consumer=store.consumer("till-1"))

    reloaded = {"reloaded": 0, "held": {"till-1": 2}}
    assert answer(ignis("--json", "reload", "orders", "--all", "-y")) == [reloaded]
    holder = f"till-1 (process {os.getpid()} on {socket.gethostname()[:80]}), which sends no heart"
    for nothing in (ignis("reload", "orders", "--all", "-y"), ignis("sweep", "orders")):
        assert f"2 messages are held by {holder}" in nothing.stdout
        assert "with: ignis reload orders --consumer till-1 --all\n" in nothing.stdout
    result = ignis("--json", "reload", "orders", "--all", "--consumer", "till-1", "--yes")
    assert answer(result) == [{"reloaded": 2}]
    assert len(queue.fire("all")) == 6


@pytest.mark.parametrize("how", [[], ["--all", "--id", "5"], ["--all", "--where", "number > 1"]])
@pytest.mark.parametrize("command", ["get", "delete", "reload"])
def test_the_messages_must_be_chosen_in_one_way(ignis, queue, command, how):
    assert "choose the messages with --id" in refusal(ignis(command, "orders", *how))


def test_an_id_of_another_queue_is_refused(ignis, queue):
    assert "is not of queue 'orders'" in refusal(ignis("delete", "orders", "--id", 1 << 50, "-y"))


@pytest.mark.parametrize(
    "command",
    [("requeue", "--all", "--yes"), ("shovel", "--limit", "4"), ("delete", "--all", "--yes")],
)
def test_many_messages_are_counted_on_a_terminal_alone(ignis, queue, monkeypatch, command):
    monkeypatch.setattr(rounds, "PART_MESSAGES", 2)
    act, *how = command

    silent = ignis(act, "orders", *how)
    assert (silent.exit_code, silent.stderr) == (0, "")
    queue.load(orders(4, 20))
    queue.sideline(queue.fire(4).ids)
    monkeypatch.setenv("FORCE_COLOR", "1")
    counted = ignis(act, "orders", *how)

    assert counted.exit_code == 0
    assert re.search(r"4/4\b|4/\d+", counted.stderr), counted.stderr
