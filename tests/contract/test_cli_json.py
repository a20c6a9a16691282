"""Every command answers in JSON if it is asked to, one object per line."""

import pytest
from typer.main import get_command

from ignis_cli.app import app
from queue_core import VIEWS
from tests.command_line import answer
from tests.factories import make_filled, make_queue

#: A call of each command; {message} is a message in the sideline, and {folder} an empty folder.
CALLS = {
    "adopt": (),
    "backup": ("{folder}",),
    "breaker": ("open", "bank", "--create"),
    "breakers": (),
    "cancel": ("{job}",),
    "clock": (),
    "compact": ("orders",),
    "consumers": (),
    "create": ("more", "number bigint"),
    "deactivate": ("orders", "--yes"),
    "delete": ("orders", "--all", "--yes"),
    "describe": ("orders",),
    "drop": ("ended", "--yes"),
    "edit": ("orders", "{message}", "--set", "customer=ann"),
    "expire": ("orders",),
    "failures": (),
    "fire": ("orders",),
    "forget": ("--idle", "90d"),
    "fsck": (),
    "get": ("orders", "--all"),
    "grants": ("ann", "--role", "consumer"),
    "jobs": (),
    "leftovers": (),
    "limits": (),
    "subscriptions": (),
    "retained": (),
    "log": (),
    "load": ("orders", "-"),
    "message": ("orders", "{message}"),
    "metrics": ("--once",),
    "pause": ("orders",),
    "peek": ("orders",),
    "problems": (),
    "queues": (),
    "recover": (),
    "reload": ("orders", "--all", "--yes"),
    "repair": ("orders",),
    "reports": (),
    "requeue": ("orders", "--all", "--yes"),
    "resume": ("orders",),
    "retries": (),
    "samples": (),
    "set": ("orders", "concurrency=3"),
    "shards": (),
    "shovel": ("orders",),
    "sideline": ("orders", "--all", "--yes"),
    "slices": (),
    "sweep": ("orders", "--older-than", "0s"),
    "top": ("--once",),
    "vacuum": (),
    "why": ("orders",),
    "work": ("tests.contract.test_cli_json:handle", "--queue", "orders", "--drain"),
}
#: What some of them answer.
ANSWERS = {
    "compact": {"queue": "orders", "compacted": 0},
    "deactivate": {"deactivated": "orders"},
    "expire": {"queue": "orders", "expired": 0},
    "fsck": {"broken": 0, "repaired": 0},
    "recover": {"recovered": 0},
    "repair": {"queue": "orders", "repaired": 0, "left": []},
    "shovel": {"queue": "orders", "shovelled": 2},
    "sweep": {"queue": "orders", "swept": 1},
    "vacuum": {"dry_run": False, "files": [], "bytes": 0},
}
#: Those that serve until a signal, or have tests of their own with what they need.
OTHERS = {
    *("console", "console-user", "restore"),
    *("clone", "replay", "seek", "snapshot", "subscribe"),
}


def handle(_):
    return True


def test_each_command_has_a_call_here():
    assert sorted(get_command(app).commands) == sorted([*CALLS, *OTHERS])


@pytest.mark.parametrize("command", CALLS)
def test_its_answer_is_json(ignis, store, tmp_path, command):
    queue = make_filled(store, 6)
    queue.sideline(queue.fire(2).ids, "no such customer")
    queue.fire(1)
    where = {"folder": tmp_path / "other", "message": "", "job": ""}
    where["message"] = store.view("sideline", "orders")["message_id"][0].as_py()
    if command == "drop":
        make_queue(store, "ended").admin.deactivate()
    if command == "cancel":
        where["job"] = queue.start_shovel(1)
    arguments = [each.format(**where) for each in CALLS[command]]

    result = ignis("--json", command, *arguments, input='{"number": 7}\n')

    answered = answer(result)
    assert command not in ANSWERS or answered == [ANSWERS[command]]
    is_empty_view = command in VIEWS and len(store.view(command)) == 0
    if not is_empty_view and command != "leftovers":
        assert result.stdout, "it says what it has done"
