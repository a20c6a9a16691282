"""How `ignis` ends when its output is closed or full, and after Ctrl-C."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from queue_core import Store
from tests.factories import make_filled
from tests.waiting import until

#: Each round of an act has one message.
SMALL_ROUNDS = """
from queue_core.selection import rounds
rounds.PART_MESSAGES = 1
"""
RUN = "from ignis_cli.__main__ import main; main()"
MESSAGES = 1500


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def queue(place):
    """A queue of a store on SQLite, since the catalog plays no part here."""
    with Store.open(place) as store:
        queue = make_filled(store, MESSAGES)
        yield queue


def started(place, *args, script=RUN, stdin=None, stdout=subprocess.PIPE, unbuffered=""):
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True,
        env=os.environ | {
            "IGNIS_PATH": str(place), "PYTHONUNBUFFERED": unbuffered,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
    )  # fmt: skip


def ended(process):
    """The exit code of a process, and its standard error."""
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def in_flight(queue):
    return queue.choose("all").count("reload", consumer=consumer_of(queue))


def consumer_of(queue):
    (row,) = queue.store.view("consumers").to_pylist()
    return row["consumer"]


@pytest.mark.parametrize(("how", "unbuffered"), [("--json", ""), ("--delete", "1")])
def test_a_closed_pipe_leaves_a_hint_of_the_messages_in_flight(place, queue, how, unbuffered):
    process = started(place, "fire", "orders", "-n", str(MESSAGES), how, unbuffered=unbuffered)
    process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    code, said = ended(process)

    assert code == 2
    assert said == (
        f"ignis: standard output was closed by its reader; 1,500 messages of orders in flight; put "
        f"them back with: ignis reload orders --all --consumer {consumer_of(queue)}\n"
    )
    assert in_flight(queue) == MESSAGES


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize(
    "how",
    [
        ["fire", "orders", "--json", "--delete"],
        ["queues"],
        pytest.param(["metrics", "--once"], marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_is_one_line(place, queue, how):
    with open("/dev/full", "w") as full:
        code, said = ended(started(place, *how, stdout=full))

    assert code == 2
    assert len(said.splitlines()) == 1
    assert said.startswith("ignis: standard output cannot be written: No space left on device")
    assert ("; 1 message of orders in flight; put them back with" in said) == ("fire" in how)


def test_ctrl_c_ends_the_imports_without_a_word(place, tmp_path):
    (tmp_path / "typer.py").write_text(
        "import time; print('importing', flush=True); time.sleep(60)"
    )
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {RUN}"
    process = started(place, "queues", script=script)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)

    assert ended(process) == (-signal.SIGINT, "")


def test_ctrl_c_ends_an_act_between_two_rounds_and_says_how_many_are_done(place, queue):
    process = started(place, "sideline", "orders", "--all", "-y", script=SMALL_ROUNDS + RUN)
    until(lambda: queue.choose("all", magazine="sideline").count())
    process.send_signal(signal.SIGINT)
    code, said = ended(process)

    assert code == 130
    (line,) = said.splitlines()
    found = re.fullmatch(
        r"ignis: sideline was interrupted after ([\d,]+) of 1,500 messages; the rest is unchanged",
        line,
    )
    assert found, line
    moved = queue.choose("all", magazine="sideline").count()
    assert int(found[1].replace(",", "")) == moved
    assert 0 < moved < MESSAGES


def test_a_closed_standard_input_is_an_empty_one(place, queue):
    closed = f"import sys; sys.stdin = None; {RUN}"

    assert ended(started(place, "load", "orders", script=closed)) == (0, "")
    code, said = ended(started(place, "delete", "orders", "--all", script=closed))
    assert code == 1
    assert said.endswith("\nignis: standard input ended before an answer\n")


def test_top_prints_each_look_at_once(place, queue):
    process = started(place, "--json", "top", "--interval", "1h")

    assert select.select([process.stdout], [], [], 60)[0] == [process.stdout]
    assert "orders" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert ended(process) == (0, "")


def test_ctrl_c_at_a_question_is_no_answer(place, queue):
    process = started(place, "delete", "orders", "--all", stdin=subprocess.PIPE)
    question = "delete 1,500 messages of orders for good? [y/N]:"
    assert process.stderr.read(len(question)) == question
    process.send_signal(signal.SIGINT)

    assert ended(process) == (130, "\n")
    assert queue.choose("all").count() == MESSAGES
