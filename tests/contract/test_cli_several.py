"""Commands for several queues and one message, their exit codes, and what the shell completes."""

import json
from datetime import datetime

import pytest
from typer.testing import CliRunner

from ignis_cli.app import app
from queue_core.upkeep.tasks.shovel import Retries
from tests.command_line import answer, refusal
from tests.factories import make_filled, make_queue, orders


@pytest.fixture
def tenants(store):
    return [make_queue(store, name) for name in ("acme.emails", "acme.orders", "globex.orders")]


def paused(store) -> list[str]:
    return [row["queue"] for row in store.view("queues").to_pylist() if row["state"] == "paused"]


def test_a_command_is_for_several_names_and_patterns(ignis, store, tenants):
    assert ignis("pause", "acme.*", "globex.orders", "acme.orders").stdout.splitlines() == [
        f"queue {queue.name} is paused" for queue in tenants
    ]
    assert len(paused(store)) == 3
    assert answer(ignis("resume", "*.orders", "--json")) == [
        {"queue": name, "paused": False} for name in ("acme.orders", "globex.orders")
    ]
    assert paused(store) == ["acme.emails"]
    tenants[0].admin.resume()
    for queue in tenants:
        queue.load(orders(2))
        queue.sideline(queue.fire(2))
    moved = answer(ignis("shovel", "acme.*", "--force", "--json"))
    assert [row["shovelled"] for row in moved] == [2, 2]


def test_a_setting_is_changed_for_a_pattern(ignis, store, tenants):
    assert ignis("set", "acme.*", "concurrency=0").exit_code == 0
    assert paused(store) == ["acme.emails", "acme.orders"]


def test_a_queue_that_refuses_does_not_keep_the_others_from_it(ignis, store, tenants):
    tenants[0].admin.deactivate()

    result = ignis("pause", "acme.*")

    assert result.exit_code == 2
    assert "acme.emails: queue 'acme.emails' was deactivated" in result.stderr
    assert paused(store) == ["acme.orders"]


def test_an_interrupt_of_a_job_starts_no_jobs_of_further_queues(ignis, store, tenants, monkeypatch):
    def press(*_):
        raise KeyboardInterrupt

    for queue in tenants:
        queue.load(orders(2))
        queue.sideline(queue.fire(2))
    monkeypatch.setattr(Retries, "run", press)

    result = ignis("shovel", "acme.*", "globex.orders", "--wait")

    assert store.view("jobs").column("queue").to_pylist() == ["acme.emails"]
    assert (result.exit_code, result.stderr.count("is left to other processes")) == (1, 1)


@pytest.mark.parametrize("command", ["failures", "retries", "slices"])
def test_the_latest_rows_are_those_of_all_queues(ignis, store, tenants, command):
    for queue in reversed(tenants):
        queue.load(orders(1))
        queue.sideline(queue.fire(1))

    result = ignis("--json", command, "--last", 2)

    assert [row["queue"] for row in answer(result)] == ["acme.orders", "acme.emails"]
    assert "1 earlier row is not shown" in result.stderr
    every = answer(ignis("--json", command, "--last", 3))
    assert [row["queue"] for row in every] == [queue.name for queue in tenants]


def test_a_name_or_a_pattern_of_no_queue_changes_nothing(ignis, store, tenants):
    assert "did you mean" in refusal(ignis("pause", "acme.emails", "acme.order"))
    assert "no queue matches 'amce.*'" in refusal(ignis("pause", "acme.emails", "amce.*"))
    assert paused(store) == []


def test_queues_are_chosen_and_sorted(ignis, store, tenants):
    tenants[1].load(orders(3))

    def names(*how):
        return [row["queue"] for row in answer(ignis("queues", "--json", *how))]

    assert names("--sort", "waiting")[0] == "acme.orders"
    assert names("--match", "*.orders", "--sort", "queue") == ["acme.orders", "globex.orders"]
    assert ignis("queues", "--match", "none.*").exit_code == 1
    assert "did you mean 'waiting'" in refusal(ignis("queues", "--sort", "waitin"))
    assert "--sort nosuch; use one of queue, shards," in refusal(
        ignis("queues", "--sort", "nosuch")
    )
    (row,) = answer(ignis("queues", "--json", "--match", "acme.o*"))
    assert row["columns"][0] == {"column": "number", "type": "int64", "required": True}
    assert row["settings"]["concurrency"] == 8


def test_the_exit_code_is_1_if_no_message_was_meant(ignis, store):
    queue = make_filled(store, 3)
    (message, *_) = queue.peek(1)["_message_id"].to_pylist()

    assert ignis("delete", "orders", "--id", message, "--yes").exit_code == 0
    for again in (
        ("delete", "orders", "--id", message, "--yes"),
        ("get", "orders", "--id", message),
        ("requeue", "orders", "--where", "number = 1", "--yes"),
        ("message", "orders", message),
    ):
        assert ignis(*again).exit_code == 1, again
    assert ignis("requeue", "orders", "--all", "--yes").exit_code == 0


def test_a_message_is_shown_with_its_life(ignis, store):
    queue = make_filled(store, 2)
    fired = queue.fire(1)
    (message,) = fired.ids.to_pylist()
    assert answer(ignis("message", "orders", message, "--json"))[0]["place"]["state"] == "in flight"
    queue.sideline(fired, reason="declined")

    (shown,) = answer(ignis("message", "orders", message, "--json"))

    assert (shown["queue"], shown["place"]["magazine"]) == ("orders", "sideline")
    assert [each["reason"] for each in shown["failures"]] == ["declined"]
    text = ignis("message", "orders", message).stdout
    assert "state\twaiting in sideline" in text
    assert "declined" in text


def test_an_empty_or_paused_queue_says_so(ignis, store):
    queue = make_queue(store)

    for command in ("fire", "peek"):
        assert "has no message to fire" in ignis(command, "orders").stderr
    queue.load(orders(1))
    queue.admin.pause()
    nothing = ignis("fire", "orders")
    assert nothing.stderr == "ignis: queue orders is paused: ignis resume orders\n"
    assert (nothing.exit_code, queue.choose("all").count("delete")) == (0, 1)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ignis peek ac", ["acme.emails", "acme.orders"]),
        ("ignis pause globex.orders acme.o", ["acme.orders"]),
        ("ignis set acme.orders conc", ["concurrency="]),
        ("ignis reload acme.orders --consumer py", None),
        ("ignis cancel", None),
    ],
)
def test_the_shell_completes_names_of_the_store(store, address, tenants, words, found):
    env = {
        "IGNIS_CATALOG": address.catalog,
        "IGNIS_STORAGE": address.storage,
        "_IGNIS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    if found is None and "cancel" in words:
        # One that has ended can no longer be cancelled.
        ended, *found = (tenants[0].start_shovel() for _ in range(2))
        store.admin.cancel(ended)
        env |= {"COMP_WORDS": f"{words} ", "COMP_CWORD": "2"}
    elif found is None:
        found = [store.consumer().name]

    result = CliRunner().invoke(app, [], prog_name="ignis", env=env)

    assert result.stdout.split() == found


def test_errors_are_json_if_it_is_asked_for(ignis):
    for call in (("--json", "peek", "nosuch"), ("peek", "--json", "--nosuch"), ("--json", "--no")):
        said = json.loads(ignis(*call).stderr)
        assert sorted(said) == ["error", "message"]
    assert said["error"] == "BadOption"


def test_the_room_of_a_store_is_told(ignis, store):
    queue = make_filled(store, 20_000)
    queue.delete(queue.fire("all"))
    sizes = store.storage.sizes()

    assert ignis("vacuum", "--grace", "0s", "--dry-run").stdout.splitlines()[1:] == sorted(sizes)
    (done,) = answer(ignis("vacuum", "--grace", "0s", "--json"))
    assert done == {"dry_run": False, "files": sorted(sizes), "bytes": sum(sizes.values())}
    assert done["bytes"] > 0
    assert ignis("vacuum").stdout == "0 files removed, which freed 0 bytes\n"
    (described,) = answer(ignis("describe", "orders", "--json"))
    assert described["disks"][0]["free"] > 0
    assert "disk of " in ignis("queues", "--wide").stderr
    assert "\tbytes\t" in ignis("queues", "--wide").stdout


def test_a_pipe_gets_plain_values_of_one_queue_or_message(ignis, store):
    queue = make_queue(store)
    (message, *_) = queue.load(orders(1200)).to_pylist()

    for command in (("describe", "orders"), ("message", "orders", message)):
        lines = ignis(*command).stdout.partition("\n\n")[0].splitlines()
        values = dict(line.split("\t") for line in lines)
        at = values.get("created_at") or values["loaded_at"]
        assert datetime.fromisoformat(at).tzinfo is not None
        if command[0] == "message":
            assert values["message"] == str(message)
            continue
        assert (values["waiting"], values["sweep_after"]) == ("1200", "1200.0")
        assert int(values["bytes"]) > 1200
        assert 0 <= float(values["oldest_age"]) < 600
        assert all(int(size) > 0 for name, size in values.items() if name.startswith("disk of "))
