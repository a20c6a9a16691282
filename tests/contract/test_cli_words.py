"""What `ignis` says is true, complete, and said once, in the words of the command line."""

import sys

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ignis_cli.commands import app
from queue_core import Store
from tests.command_line import refusal, runner
from tests.factories import make_queue, orders


@pytest.fixture
def ignis(store):
    return runner(store.address)


def test_other_columns_are_shown_in_one_line(ignis):
    assert ignis("create", "orders", "id LONG NOT NULL, name STRING").exit_code == 0

    said = refusal(ignis("create", "orders", "id LONG", "--if-missing"))

    assert "with columns id int64 not null, name string, not id int64;" in said
    assert "store.queue" not in said
    assert "\\n" not in said


def test_a_value_that_does_not_fit_names_the_type_of_the_column(store, ignis):
    queue = store.create_queue("orders", pa.schema([("id", pa.int64()), ("amount", pa.float64())]))
    queue.load([{"id": 1, "amount": 2.0}])
    queue.sideline(queue.fire(1).ids, "declined")
    (number,) = queue.browse(magazine="sideline").column("_message_id").to_pylist()

    said = refusal(ignis("edit", "orders", number, "--set", "amount=abc"))

    assert said == "ignis: --set amount=abc: column 'amount' is double, and 'abc' is not\n"
    assert ignis("edit", "orders", number, "--set", "amount=3").exit_code == 0


def test_a_restore_over_a_store_shows_its_folder_as_it_was_given(tmp_path):
    with Store.open(tmp_path / "store") as store:
        make_queue(store).load(orders(3))
        store.admin.backup(tmp_path / "backup")

    result = CliRunner().invoke(
        app, ["--path", str(tmp_path / "store"), "restore", str(tmp_path / "backup")]
    )

    said = refusal(result)
    assert said.startswith(f"ignis: {tmp_path / 'store'} is not empty;")
    assert "--over" in said
    assert "over=True" not in said


def test_a_restore_shows_a_catalog_and_a_storage_apart(tmp_path):
    places = [f"sqlite:///{tmp_path}/catalog/one.db", str(tmp_path / "segments")]
    with Store.open(catalog=places[0], storage=places[1]) as store:
        make_queue(store).load(orders(3))
        store.admin.backup(tmp_path / "backup")

    where = ["--catalog", places[0], "--storage", places[1]]
    said = refusal(CliRunner().invoke(app, [*where, "restore", str(tmp_path / "backup")]))

    assert said.startswith(f"ignis: catalog {places[0]} with storage {places[1]} is not empty;")


def test_a_backup_counts_messages(store, ignis, tmp_path):
    queue = make_queue(store)
    queue.load(orders(7))
    queue.sideline(queue.fire(2).ids, "declined")

    assert ignis("backup", tmp_path / "backup").stdout.startswith("7 messages are in ")
    assert store.admin.backup(tmp_path / "backup").messages == 7


def test_one_message_is_one(store, ignis):
    queue = make_queue(store)
    queue.load(orders(1))
    queue.sideline(queue.fire(1).ids, "declined")

    assert ignis("shovel", "orders", "--dry-run").stdout == "1 message would go to orders\n"
    assert ignis("shovel", "orders").stdout == "1 message is back in orders\n"
    assert ignis("shovel", "orders").stdout == "0 messages are back in orders\n"


def test_the_names_of_queues_are_apart(store, ignis):
    for name in ("orders", "clicks"):
        make_queue(store, name)

    assert "did you mean 'orders'?; it has orders, clicks" in refusal(ignis("peek", "order"))


def test_an_error_of_a_pool_is_said_once(store, ignis, caplog):
    make_queue(store).load(orders(1))

    result = ignis("work", "builtins:print", "--queue", "orders", "--drain")

    assert result.exit_code == 2
    said = [record.message for record in caplog.records if "ended:" in record.message]
    assert len(said) + result.stderr.count("ignis: ") == 1, result.stderr


@pytest.mark.parametrize("name", ["refunds", "orders,refunds"])
def test_a_breaker_that_no_handler_is_known_to_have_is_told_of(store, ignis, name):
    make_queue(store)

    result = ignis("breaker", "open", name)

    assert result.exit_code == 0, "its handler may start later"
    assert f"no breaker '{name}' has opened so far, and no queue has this name" in result.stderr
    assert ignis("breaker", "close", name).stderr == "", "it is known by now"


def test_a_breaker_of_a_queue_needs_no_hint(store, ignis):
    make_queue(store)
    make_queue(store, "clicks")

    for name in ("orders", "clicks,orders"):
        assert ignis("breaker", "open", name).stderr == ""


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


def test_no_command_at_all_shows_the_help():
    result = CliRunner().invoke(app, [])

    assert result.exit_code == 0
    assert result.stdout == CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("metrics", "queue_core.watching", "metrics"),
        ("console", "ignis_console.server", "console"),
    ],
)
def test_a_missing_extra_is_named_without_the_program(ignis, monkeypatch, command, module, extra):
    # Python finds no module whose entry is None.
    monkeypatch.setitem(sys.modules, module, None)

    said = refusal(ignis(command))

    assert said.startswith(f"ignis: {command}: ")
    assert f"[{extra}]" in said
