"""What `ignis` says is true, complete, and said once, in the words of the command line."""

import sys

import pytest
from typer.testing import CliRunner

from ignis_cli.app import app
from tests.command_line import refusal
from tests.factories import make_filled, make_queue, orders


def test_other_columns_are_shown_in_one_line(ignis):
    assert ignis("create", "orders", "id LONG NOT NULL, name STRING").exit_code == 0

    said = refusal(ignis("create", "orders", "id LONG", "--if-missing"))

    assert "with columns id int64 not null, name string, not id int64;" in said
    assert "store.queue" not in said
    assert "\\n" not in said


def test_a_restore_over_a_store_names_it_as_it_was_given(tmp_path):
    catalog, segments = f"sqlite:///{tmp_path}/catalog/one.db", f"{tmp_path}/segments"
    for given, shown in [
        (("--path", f"{tmp_path}/store"), f"{tmp_path}/store"),
        (
            ("--catalog", catalog, "--storage", segments),
            f"catalog {catalog} with storage {segments}",
        ),
    ]:
        folder = f"{tmp_path}/backup-{given[0]}"
        runs = [("create", "orders", "number LONG"), ("backup", folder), ("restore", folder)]
        *_, last = [CliRunner().invoke(app, [*given, *command]) for command in runs]

        assert refusal(last).startswith(f"ignis: {shown} is not empty;")
        assert "--over" in last.stderr
        assert "over=True" not in last.stderr


def test_one_message_is_one(store, ignis):
    queue = make_filled(store, 1)
    queue.sideline(queue.fire(1).ids, "declined")

    assert ignis("shovel", "orders", "--dry-run").stdout == (
        "1 message would go from the sideline of orders back to main\n"
    )
    assert ignis("shovel", "orders").stdout == "1 message is back in orders\n"
    assert ignis("shovel", "orders").stdout == "0 messages are back in orders\n"


def test_the_names_of_queues_are_apart(store, ignis):
    for name in ("orders", "clicks"):
        make_queue(store, name)

    assert "did you mean 'orders'? Queues: orders, clicks" in refusal(ignis("peek", "order"))


def test_an_error_of_a_pool_is_said_once(store, ignis, caplog):
    make_queue(store).load(orders(1))

    result = ignis("work", "builtins:print", "--queue", "orders", "--drain")

    assert result.exit_code == 2
    said = [record.message for record in caplog.records if "ended:" in record.message]
    assert len(said) + result.stderr.count("ignis: ") == 1, result.stderr


def test_a_breaker_that_no_handler_is_known_to_have_is_refused(store, ignis):
    make_queue(store)
    make_queue(store, "clicks")

    for known in ("orders", "clicks,orders"):
        assert ignis("breaker", "open", known).stderr == ""
    for name in ("refunds", "orders,refunds"):
        for turn in ("open", "close", "auto", "forget"):
            said = refusal(ignis("breaker", turn, name))
            assert f"no breaker '{name}' has ever opened, and no queue has this name" in said
        assert ignis("breaker", "open", name, "--create").exit_code == 0, "it may start later"
        assert ignis("breaker", "close", name).stderr == "", "it is known by now"
    assert "did you mean 'refunds'?" in refusal(ignis("breaker", "open", "refund"))

    assert ignis("breaker", "forget", "refunds").exit_code == 0

    names = store.view("breakers").column("breaker").to_pylist()
    assert names == ["clicks,orders", "orders", "orders,refunds"]
    assert "no breaker 'refunds'" in refusal(ignis("breaker", "forget", "refunds"))
    assert "no breaker 'clicks'" in refusal(ignis("breaker", "forget", "clicks", "--create"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["queuesx"],
            "no such command 'queuesx'; did you mean 'queues', 'requeue'?; see: {} --help",
        ),
        (["peek"], "missing argument 'QUEUE'; see: {} peek --help"),
        (["peek", "orders", "--cout", "3"], "no such option: --cout"),
        (["--paht", "x", "queues"], "no such option: --paht"),
        (["peek", "orders", "-n", "0"], "invalid value for '--count' / '-n': "),
        (["breaker", "opn", "orders"], "invalid value for 'turn': 'opn' is not one of 'open', "),
    ],
)
def test_wrong_arguments_are_one_line(args, said):
    result = CliRunner().invoke(app, args, prog_name="ignis")

    assert refusal(result).startswith("ignis: " + said.format("ignis"))


def test_a_missing_extra_is_named_without_the_program(ignis, monkeypatch):
    # Python finds no module whose entry is None.
    monkeypatch.setitem(sys.modules, "queue_core.watching", None)

    said = refusal(ignis("metrics"))

    assert said.startswith("ignis: metrics: ")
    assert "[metrics]" in said
