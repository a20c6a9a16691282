"""The command line: it shows a store, calls the verbs, and reports errors in one line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from sqlalchemy import update
from typer.testing import CliRunner, Result

from ignis_cli.app import app
from ignis_cli.commands_inspect import frames
from queue_core import Store
from queue_core.catalog.tables import counters
from queue_core.errors import DamagedSegment
from queue_core.values.model import Magazine, State
from tests.books import audit
from tests.command_line import answer, refusal
from tests.factories import (
    drop,
    make_filled,
    make_queue,
    numbers_of,
    orders,
    sideline_traced,
    with_sidelined,
)


def test_create_makes_the_store_and_a_queue_as_it_is_described(ignis, address):
    columns = "number LONG NOT NULL, customer STRING, tags ARRAY<STRING>"

    result = ignis("create", "orders", columns, "--shards", 3, "--key", "customer",
                   "--set", "sweep_after=60", "--set", 'attributes=["number"]')  # fmt: skip

    assert result.exit_code == 0, result.stderr
    with Store(address, create=False) as store:
        info = store.queue("orders").info
    assert (info.shards, info.key) == (3, "customer")
    assert (info.settings.sweep_after, info.settings.attributes) == (60, ("number",))
    assert [field.nullable for field in info.schema] == [False, True, True]
    assert info.schema.field("tags").type.value_type == pa.string()


def test_create_takes_the_columns_of_a_file(ignis, address, tmp_path):
    file = tmp_path / "orders.parquet"
    pyarrow.parquet.write_table(orders(1), file)

    assert ignis("create", "orders", "--like", file).exit_code == 0
    with Store(address, create=False) as store:
        assert store.queue("orders").schema.equals(orders(0).schema)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("orders",), "give the columns"),
        (("orders", "number LONG", "--like", "x.parquet"), "give the columns"),
        (("orders", "number"), "'number' has no type"),
        (("../x", "number LONG"), "queue name '../x'"),
        (("orders", "number LONG", "--set", "sweep_aftr=3"), "did you mean 'sweep_after'"),
        (("orders", "number LONG", "--set", "sweep_after"), "NAME=VALUE"),
        (("orders", "number LONG", "--key", "nmber"), "did you mean 'number'"),
        (("orders", "--like", "none.parquet"), "none.parquet cannot be read: No such file"),
    ],
)
def test_create_refuses_malformed_arguments(ignis, store, args, why):
    assert why in refusal(ignis("create", *args))
    assert store.queues() == []


def test_an_equal_queue_is_accepted_if_asked_for(ignis, store):
    make_queue(store)
    columns = "number LONG NOT NULL, customer STRING, amount DOUBLE"
    same = ("create", "orders", columns, "--shards", 1)

    assert "with --if-missing, an equal queue is accepted" in refusal(ignis(*same))
    assert answer(ignis(*same, "--if-missing", "--json")) == [{"queue": "orders", "created": False}]
    assert "orders" in refusal(ignis("create", "orders", "id LONG", "--if-missing"))
    ignis("deactivate", "orders", "--yes")
    assert "queue 'orders' was deactivated at" in refusal(ignis(*same))


def test_create_says_which_settings_an_existing_queue_keeps(ignis, store):
    before = make_queue(store, message_expiry=60).info
    columns = "number LONG NOT NULL, customer STRING, amount DOUBLE"
    same = ("create", "orders", columns, "--shards", 1, "--if-missing", "--set", "sweep_after=20m")

    assert ignis(*same, "--set", "message_expiry=1m").stderr == ""
    kept = ignis(*same, "--set", "message_expiry=5 hours", "--set", "dedup=number")

    assert kept.exit_code == 0
    assert kept.stderr == (
        "ignis: queue orders already existed, and keeps its own message_expiry, dedup; to change "
        "it: ignis set orders 'message_expiry=5 hours' dedup=number\n"
    )
    assert store.queue("orders").info == before


def test_a_store_is_shown(ignis, store):
    queue = make_filled(store, 10, shards=2, key="customer", sweep_after=5.0)
    queue.sideline(queue.fire(3))
    queue.fire(2)
    make_queue(store, "payments")

    def shown(*command):
        return answer(ignis(*command, "--json"))

    counts = ("queue", "shards", "waiting", "in_flight", "sidelined")
    assert [[row[name] for name in counts] for row in shown("queues")] == [
        ["orders", 2, 5, 2, 3],
        ["payments", 1, 0, 0, 0],
    ]
    (described,) = shown("describe", "orders")
    assert [(each["column"], each["required"]) for each in described["columns"]] == [
        ("number", True), ("customer", False), ("amount", False),
    ]  # fmt: skip
    assert described["settings"]["sweep_after"] == 5.0
    assert sum(row["loaded"] for row in described["counters"]) == 13
    slices = shown("slices", "orders")
    assert sum(row["messages"] for row in slices if row["state"] == "fired") == 2
    assert sum(row["messages"] for row in slices) == 10
    assert [(row["magazine"], row["shard"]) for row in shown("shards", "orders")] == [
        ("main", 0), ("main", 1), ("sideline", 0), ("sideline", 1),
    ]  # fmt: skip
    assert [row["in_flight"] for row in shown("consumers")] == [2]
    frame = shown("top", "--once", "--interval", "50ms")
    assert [(row["queue"], row["waiting"]) for row in frame] == [("orders", 5), ("payments", 0)]
    assert all(row["loaded_per_s"] == 0 for row in frame)
    for command in ("queues", "top --once"):
        assert {"orders", "payments"} <= set(ignis(*command.split()).stdout.split())
    assert "sweep_after" in ignis("describe", "orders").stdout


def test_peek_shows_the_next_messages_and_takes_none(ignis, store):
    queue = make_queue(store, shards=8)
    for number in range(20):
        queue.load({"number": number, "customer": f"[red]{number}"})

    def shown(*how):
        return [row["number"] for row in answer(ignis("peek", "orders", *how, "--json"))]

    assert shown("-n", 3, "--order", "global") == [0, 1, 2]
    assert shown("--selector", "number < 9", "--order-by", "number DESC")[0] == 8
    assert shown("--magazine", "sideline") == []
    assert answer(ignis("peek", "orders_SIDELINE", "--json")) == []
    assert "[red]19" in ignis("peek", "orders", "-n", 20).stdout, "brackets are not markup"
    assert sorted(numbers_of(queue.fire("all").messages)) == list(range(20))


def test_failures_are_shelved_and_shovelled_back(ignis, store):
    with_sidelined(store, 5, reason="declined")

    shown = answer(ignis("failures", "orders", "--last", 3, "--json"))
    moved = answer(ignis("shovel", "orders", "--limit", 2, "--json"))

    assert [row["reason"] for row in shown] == ["declined"] * 3
    assert "2 earlier rows are not shown" in ignis("failures", "--last", 3).stderr
    assert moved == [{"queue": "orders", "shovelled": 2}]
    assert "3 messages are back in orders" in ignis("shovel", "orders").stdout
    assert len(audit(store).ids(Magazine.MAIN, State.LOADED)) == 5
    reports = answer(ignis("reports", "orders", "--json"))
    assert [(row["task"], row["moved"]) for row in reports] == [("shovel", 2), ("shovel", 3)]


def test_vacuum_lists_files_in_a_dry_run_and_then_removes_them(ignis, store):
    location = store.storage.new_location("orders")
    with store.storage.create(location) as sink:
        sink.write(b"left by a writer that died")

    tried = answer(ignis("vacuum", "--grace", "0s", "--dry-run", "--json"))
    assert tried == [{"dry_run": True, "files": [location], "bytes": 26}]
    assert store.storage.exists(location)
    assert "0 files removed" in ignis("vacuum").stdout, "it is too young"
    assert ignis("vacuum", "--grace", "0s").stdout == "1 file removed, which freed 26 bytes\n"
    assert not store.storage.exists(location)


def test_top_shows_the_rates_between_two_samples(store):
    queue = make_queue(store)
    looks = frames(store.catalog, interval=0.05)

    first = next(looks)
    queue.load(orders(7))
    second = next(looks)

    assert first["loaded_per_s"].to_pylist() == [None]
    assert 0 < second["loaded_per_s"][0].as_py() <= 7 / 0.05
    assert second["waiting"].to_pylist() == [7]


def test_top_takes_a_queue_that_was_made_anew_for_another_one(store):
    former = make_filled(store, 7)
    looks = frames(store.catalog, interval=0.01)
    next(looks)
    drop(former)
    make_queue(store).load(orders(2))

    assert next(looks)["loaded_per_s"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("peek", "ordrs"), "no queue 'ordrs'; did you mean 'orders'?"),
        (("describe", "'; drop"), "queue name"),
        (("peek", "orders", "--magazine", "mian"), "did you mean 'main'"),
        (("peek", "orders", "--order", "gobal"), "order='gobal': use 'shard' or 'global'"),
        (("sweep", "orders", "--older-than", "5x"), "--older-than 5x: use a duration"),
        (("vacuum", "--grace", "soon"), "--grace soon: use a duration"),
        (("load", "orders", "orders.txt"), "unknown extension"),
        (("load", "orders", "none.parquet"), "none.parquet cannot be read"),
        (("load", "orders", "--format", "xml"), "--format xml; use jsonl, csv, parquet, arrow"),
    ],
)
def test_bad_input_is_one_line_that_names_the_culprit(ignis, store, args, why):
    make_queue(store)

    assert why in refusal(ignis(*args))


def test_a_selector_that_cannot_be_understood_is_shown_below_the_line(ignis, store):
    make_queue(store)

    result = ignis("peek", "orders", "--selector", "nmber > 3")

    assert result.exit_code == 2
    first, *picture = result.stderr.splitlines()
    assert "did you mean 'number'" in first
    assert "nmber > 3" in "".join(picture)


def run_alone(*args: object) -> Result:
    return CliRunner().invoke(app, list(map(str, args)))


def test_a_folder_without_a_store_is_refused_and_left_alone(tmp_path):
    assert "no ignis store" in refusal(run_alone("--path", tmp_path / "none", "queues"))
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_in_a_file_of_another_name_is_named(tmp_path):
    given = ("--catalog", f"sqlite:///{tmp_path}/shop.db", "--storage", tmp_path / "files")

    assert f"no ignis store at {tmp_path}/shop.db;" in refusal(run_alone(*given, "queues"))


def test_the_address_may_follow_the_command_or_come_from_the_environment(tmp_path, monkeypatch):
    for name in ("here", "there"):
        assert run_alone("create", name, "number LONG", f"--path={tmp_path / name}").exit_code == 0
    monkeypatch.setenv("IGNIS_PATH", str(tmp_path / "here"))

    assert [row["queue"] for row in answer(run_alone("queues", "--json"))] == ["here"]
    there = run_alone("queues", "--json", "--path", tmp_path / "there")
    assert [row["queue"] for row in answer(there)] == ["there"]
    monkeypatch.delenv("IGNIS_PATH")
    assert "which store? give --path" in refusal(run_alone("queues"))


def test_version_and_help_need_no_store():
    assert run_alone("--version").stdout.startswith("ignis 0.")
    shown = run_alone("--help")
    assert [name for name in ("peek", "vacuum", "top") if name not in shown.stdout] == []
    alone = run_alone()
    assert (alone.exit_code, alone.stdout) == (0, shown.stdout), "no command is no error"


def test_shells_complete_commands(monkeypatch):
    monkeypatch.setenv("_IGNIS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "ignis sho")
    monkeypatch.setenv("COMP_CWORD", "1")

    assert CliRunner().invoke(app, [], prog_name="ignis").stdout.split() == ["shovel"]


def test_help_is_wrapped_by_the_terminal_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    shown = run_alone("adopt", "--help").stdout
    paragraph = shown.partition("owner of the storage.")[2].partition("╭")[0].strip()

    assert len(paragraph.splitlines()) == 1


def test_settings_are_changed_all_or_none(ignis, store):
    make_queue(store)

    said = answer(ignis("--json", "set", "orders", "sweep_after=15m", "shovel_interval=null"))
    assert said == [{"queue": "orders", "sweep_after": 900, "shovel_interval": None}]
    assert "shovel_interval is none" in ignis("set", "orders", "shovel_interval=none").stdout
    before = store.queue("orders").info.settings
    assert (before.sweep_after, before.shovel_interval) == (900, None)

    for wrong, why in [
        ("sweep_aftr=3", "did you mean 'sweep_after'"),
        ("message_expiry=2 fortnights", "message_expiry=2 fortnights: use seconds or a duration"),
    ]:
        assert why in refusal(ignis("set", "orders", "sweep_after=5m", wrong))
    assert store.queue("orders").info.settings == before


def test_a_deactivated_queue_is_dropped_after_a_question(ignis, store):
    queue = make_filled(store, 5)
    queue.sideline(queue.fire(2))
    queue.fire(1)

    assert "in use; run ignis deactivate orders first" in refusal(ignis("drop", "orders", "--yes"))
    ignis("deactivate", "orders", "--yes")
    asked = ignis("drop", "orders", input="n\n")
    assert "drop queue orders with 5 messages? [y/N]" in asked.stderr
    assert (asked.exit_code, store.queues()) == (1, ["orders"])
    assert "repeat the command with --yes" in refusal(ignis("--json", "drop", "orders"))

    done = ignis("drop", "orders", input="y\n")

    assert done.stdout.endswith("queue orders is dropped, with 5 messages\n")
    assert store.queues() == []
    assert "no queue 'orders'" in refusal(ignis("drop", "orders", "--yes"))
    make_queue(store).admin.deactivate()
    told = answer(ignis("--json", "drop", "orders", "--yes"))
    assert told == [{"dropped": "orders", "messages": 0}]


def test_no_reason_steers_the_terminal(ignis, store):
    """A reason is often the text of an exception, with a producer's data."""
    queue = make_filled(store, 1)
    reason = "\x1b]52;c;cm0gLXJm\x07 \x1b[31mred \x9b2J \u202eback"
    queue.sideline(queue.fire("all"), reason=reason)

    for_people, for_programs = ignis("failures", "orders"), ignis("failures", "orders", "--json")

    assert for_people.exit_code == 0, for_people.stderr
    for shown in (for_people.stdout, for_programs.stdout):
        assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "\\x1b]52;c;" in for_people.stdout
    assert answer(for_programs)[0]["reason"] == reason


@pytest.mark.spoiled
def test_fsck_shows_what_is_broken_and_ends_with_one(ignis, store):
    make_queue(store).load(orders(3))
    assert answer(ignis("fsck", "--deep", "--json")) == [{"broken": 0, "repaired": 0}]
    store.catalog.write(lambda c: c.execute(update(counters).values(damaged=7)))

    result = ignis("fsck")

    assert result.exit_code == 1
    assert "not what was written" in result.stdout
    assert "4 invariants are broken" in result.stdout
    repaired = ignis("fsck", "--repair")
    assert repaired.exit_code == 0
    assert "the store is in order, and 4 were repaired" in repaired.stdout
    assert answer(ignis("fsck", "--json")) == [{"broken": 0, "repaired": 0}]


def test_a_backup_is_written_and_restored_into_an_empty_place(ignis, store, tmp_path, in_files):
    queue = make_filled(store, 5)
    queue.sideline(queue.fire(2).ids, "declined")
    folder, new, others = tmp_path / "backup", tmp_path / "new", tmp_path / "others"
    others.mkdir()
    others.joinpath("notes.txt").write_text("mine")

    (written,) = answer(ignis("backup", folder, "--json"))
    again = ignis("backup", folder).stdout
    (restored,) = answer(run_alone("--path", new, "restore", folder, "--json"))

    assert [written[name] for name in ("messages", "segments", "copied", "missing")] == [
        5,
        1,
        1,
        [],
    ]
    assert again.startswith("5 messages are in ")
    assert f"messages are in {folder}, with 1 segment, 0 of them new" in again
    assert [restored[name] for name in ("messages", "copied", "damaged")] == [5, 1, 0]
    with Store.open(new, create=False) as other:
        assert numbers_of(other.queue("orders").fire("all").messages) == [2, 3, 4]
    assert "is not empty, and holds no backup" in refusal(ignis("backup", others))
    assert [file.name for file in others.iterdir()] == ["notes.txt"]


@pytest.mark.spoiled
def test_a_damaged_backup_is_named_file_by_file(ignis, store, tmp_path, in_files):
    make_filled(store, 10, each=5)
    folder = tmp_path / "backup"
    ignis("backup", folder)
    whole = run_alone("backup", folder, "--verify")
    missing, altered = sorted((folder / "segments").rglob("*.arrow"))
    missing.unlink()
    altered.write_bytes(bytes(altered.stat().st_size))

    found = run_alone("backup", folder, "--verify", "--json")

    assert (whole.exit_code, found.exit_code) == (0, 1)
    assert "is complete, with 2 segments" in whole.stdout
    faults = json.loads(found.stdout)["faults"]
    assert [fault.partition(";")[0] for fault in faults] == [
        f"{missing} is missing",
        f"{altered} is altered or torn",
    ]
    # The next backup copies what this one lacks.
    assert "with 2 segments, 2 of them new" in ignis("backup", folder).stdout
    assert answer(run_alone("backup", folder, "--verify", "--json"))[0]["faults"] == []

    # A file that the storage does not have is told to whoever runs the backup each night.
    gone = min(store.storage.list())
    store.storage.remove(gone)
    lacking = ignis("backup", tmp_path / "another")
    assert lacking.exit_code == 1
    assert "with 1 segment, 1 of them new" in lacking.stdout
    assert f"{gone} is missing from the storage, or damaged there" in lacking.stdout


def test_a_repair_puts_back_only_what_can_be_read(ignis, store, in_files):
    queue = make_filled(store, 5)
    (file,) = Path(store.storage.uri).rglob("*.arrow")
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(DamagedSegment):
        queue.fire(5)

    checked, tried = ignis("fsck", "--json"), ignis("repair", "orders", "--json")
    file.write_bytes(data)

    assert (checked.exit_code, tried.exit_code) == (1, 1)
    (told,) = json.loads(tried.stdout)["left"]
    assert told["file"].endswith(file.name)
    assert told["messages"] == 5
    assert told["remedy"] in checked.stdout
    assert ignis("repair", "orders").stdout.strip() == "5 messages of orders put back"
    assert ignis("fsck").exit_code == 0


def test_a_restore_over_a_store_needs_the_option_over(ignis, store, tmp_path):
    queue = make_filled(store, 5)
    assert ignis("backup", tmp_path / "backup", "--catalog-only").exit_code == 0
    queue.delete(queue.fire("all"))

    assert "is not empty; nothing was changed" in refusal(ignis("restore", tmp_path / "backup"))
    assert "holds no complete backup" in refusal(ignis("restore", tmp_path / "none", "--over"))
    assert "5 messages are restored" in ignis("restore", tmp_path / "backup", "--over").stdout
    assert queue.browse().num_rows == 5


def test_leftovers_of_a_restore_are_listed_and_given_up(ignis, store, tmp_path, in_files):
    queue = make_queue(store)
    assert ignis("backup", tmp_path / "backup").exit_code == 0
    queue.load(orders(5))
    (location,) = store.storage.list()

    said = ignis("restore", tmp_path / "backup", "--over").stdout

    assert "1 segments are newer than the backup: `ignis leftovers` lists them" in said
    assert answer(ignis("leftovers", "--json")) == [{"given_up": False, "files": [location]}]
    assert "1 files were given up" in ignis("leftovers", "--give-up").stdout
    assert answer(ignis("leftovers", "--json")) == [{"given_up": False, "files": []}]
    assert "no ignis store" in refusal(run_alone("--path", tmp_path / "none", "leftovers"))


def test_grants_are_printed_and_need_no_store():
    printed = run_alone("grants", "--role", "producer", "--schema", "shop", 'the "loader"')

    assert printed.exit_code == 0
    lines = printed.stdout.splitlines()
    assert lines[0] == 'GRANT USAGE ON SCHEMA "shop" TO "the ""loader""";'
    assert all(line.startswith("GRANT ") and line.endswith(";") for line in lines)
    assert "did you mean 'producer'" in refusal(run_alone("grants", "--role", "producr", "loader"))


def test_forgetting_consumers(ignis, store):
    make_queue(store)
    store.consumer("till")
    store.consumer("clerk")

    assert "name consumers, or give --idle" in refusal(ignis("forget"))
    assert "did you mean 'till'" in refusal(ignis("forget", "til"))
    assert "--idle soon: use a duration" in refusal(ignis("forget", "--idle", "soon"))
    assert "till" in ignis("forget", "till", "--dry-run").stdout
    assert answer(ignis("--json", "forget", "till", "--idle", "90d"))[0]["forgotten"] == ["till"]
    assert store.view("consumers").column("consumer").to_pylist() == ["clerk"]


def test_failures_that_are_alike_are_shown_with_a_trace(ignis, store):
    for name, count in (("orders", 5), ("others", 1)):
        queue = make_filled(store, count, name)
        firing = queue.fire(count)
        sideline_traced(queue, firing.ids[1:], reason="ValueError: no 8")
        queue.sideline(firing.ids[:1], "by 5 hands")

    shown = ignis("failures", "--trace").stdout.splitlines()
    assert shown[0] == "orders: exception: ValueError: no *"
    assert shown[1].startswith("  4 failures, the latest at 20")
    assert shown[2].startswith("  message ")
    assert shown[3:5] == ["    at", "    ValueError: no 8"]
    assert shown[5] == "orders: rejected: by * hands"
    assert shown[6].startswith("  1 failure, the latest at 20")
    assert shown[7] == "others: rejected: by * hands"

    groups = answer(ignis("--json", "failures", "orders", "--trace", "--last", 1))
    assert [(row["failures"], row["trace"]) for row in groups] == [(4, "at\nValueError: no 8")]
    hidden = ignis("failures", "--trace", "--last", 1).stderr
    assert hidden == "ignis: 2 smaller groups are not shown; show more with --last\n"
    assert ignis("failures", "--trace", "--last", 3).stderr == ""
