"""A person corrects a message of the sideline, and it is tried again."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.errors import BadOption, BadOutcome, QueueFull, SchemaMismatch
from queue_core.verbs import edit
from tests.books import leftover_files
from tests.command_line import refusal
from tests.factories import load_singly, make_queue, numbers_of, orders


def with_sidelined(store, count, **settings):
    queue = make_queue(store, **settings)
    ids = queue.load(orders(count)).to_pylist()
    queue.sideline(queue.fire("all"), reason="no such customer")
    return queue, ids


def test_an_edited_message_is_at_the_tail_of_main_under_its_id(store, inlined):
    queue, ids = with_sidelined(store, 5)
    queue.load(orders(1, 9))

    queue.edit(ids[2], {"customer": "customer-7", "amount": None})

    nine, two = queue.peek().to_pylist()
    assert nine["number"] == 9
    assert (two["number"], two["customer"], two["amount"]) == (2, "customer-7", None)
    assert (two["_message_id"], two["_attempt"]) == (ids[2], 1)
    assert numbers_of(queue.browse(magazine="sideline")) == [0, 1, 3, 4]
    assert store.view("reports").column("task").to_pylist()[-1] == "by_hand"
    firing = queue.fire("all")
    assert queue.sideline([ids[2]]) == 1
    queue.edit(ids[2], {"amount": 1})
    assert queue.choose(ids[2]).rows().column("amount").to_pylist() == [1.0]
    assert queue.delete(firing) == 1
    store.admin.vacuum(grace=0)
    assert store.admin.fsck(deep=True).num_rows == 0


def test_a_compacted_message_and_a_newer_column(store):
    queue = make_queue(store)
    ids = load_singly(queue, NEIGHBOURS + 6)
    queue.choose("all").sideline()
    assert queue.admin.compact() == NEIGHBOURS + 6
    queue.admin.add_columns(pa.schema([("due", pa.date32())]))

    queue.edit(ids[3], {"due": dt.date(2026, 1, 2)})
    queue.admin.compact()

    (row,) = queue.choose(ids[3]).rows().to_pylist()
    assert (row["number"], row["due"]) == (3, dt.date(2026, 1, 2))
    assert queue.choose("all", magazine="sideline").count() == NEIGHBOURS + 5


def test_the_key_cannot_be_edited(store):
    queue, ids = with_sidelined(store, 3, shards=4, key="customer")
    with pytest.raises(BadOption, match="'customer' is the key"):
        queue.edit(ids[1], {"customer": "customer-2"})
    queue.edit(ids[1], {"customer": "customer-1", "amount": 5.0})
    assert queue.peek().column("amount").to_pylist() == [5.0]


def test_only_messages_that_wait_in_the_sideline_are_edited(store):
    queue, ids = with_sidelined(store, 3)
    queue.choose(ids[0]).requeue()
    held = queue.fire(1, magazine="sideline")
    queue.choose(ids[2]).delete()

    for message in ids:
        with pytest.raises(BadOption, match="does not wait in the sideline"):
            queue.edit(message, {"amount": 1.0})
    with pytest.raises(BadOutcome, match="is not of queue"):
        queue.edit(1 << 50, {"amount": 1.0})
    assert queue.delete(held) == 1


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({}, BadOption, "at least one column"),
        ({"amont": 1.0}, SchemaMismatch, r"'amont'; did you mean 'amount'"),
        ({"_attempt": 0}, SchemaMismatch, r"'_attempt'; its columns are .*amount"),
        ({"amount": "much"}, SchemaMismatch, "amount"),
        ({"number": None}, SchemaMismatch, "number"),
    ],
)
def test_values_that_do_not_fit_change_nothing(store, values, error, text):
    queue, ids = with_sidelined(store, 1)
    with pytest.raises(error, match=text):
        queue.edit(ids[0], values)
    assert queue.browse(magazine="sideline").num_rows == 1


def test_a_full_queue_refuses_it_and_no_file_is_left(store, in_files):
    queue, ids = with_sidelined(store, 2, max_size=2)
    queue.load(orders(2, 5))
    with pytest.raises(QueueFull, match="no room for the edited message"):
        queue.edit(ids[0], {"amount": 1.0})
    assert leftover_files(store) == set()
    assert queue.browse(magazine="sideline").num_rows == 2


def test_a_message_that_is_edited_by_two_people_has_the_last_values(store, monkeypatch):
    queue, ids = with_sidelined(store, 2)
    read, first = edit.read_table, []

    def and_meanwhile(*args):
        if not first:
            first.append(True)
            queue.edit(ids[0], {"customer": "first"})
            queue.sideline(queue.fire("all"))
        return read(*args)

    monkeypatch.setattr(edit, "read_table", and_meanwhile)
    queue.edit(ids[0], {"amount": 99.0})

    (row,) = queue.browse().to_pylist()
    assert (row["customer"], row["amount"], row["_attempt"]) == ("first", 99.0, 2)


def test_the_command_line_edits_a_message(ignis, store):
    schema = pa.schema([("id", pa.int64()), ("note", pa.string()), ("when", pa.timestamp("us")),
                        ("tags", pa.list_(pa.string())),
                        ("price", pa.decimal128(38, 18)),
                        ("costs", pa.list_(pa.decimal128(38, 18)))])  # fmt: skip
    queue = make_queue(store, schema=schema)
    (message,) = queue.load([{"id": 1, "note": "x", "tags": ["a"]}]).to_pylist()
    queue.choose("all").sideline()

    new = ["--set", "note=12", "--set", "when=2026-01-02 03:04:05", "--set", 'tags=["b","c"]']
    new += ["--set", "price=1.000000000000000001", "--set", "costs=[\n1.000000000000000001]"]
    done = ignis("edit", "orders", message, *new, "--null", "id")

    assert done.stdout == f"message {message} of orders is edited, and back in main\n"
    (row,) = queue.peek().select(schema.names).to_pylist()
    when = dt.datetime(2026, 1, 2, 3, 4, 5)
    price = Decimal("1.000000000000000001")
    numbers = {"price": price, "costs": [price]}
    assert row == {"id": None, "note": "12", "when": when, "tags": ["b", "c"], **numbers}
    assert "does not wait" in refusal(ignis("edit", "orders", message, "--set", "note=1"))
    assert "no column 'nte'" in refusal(ignis("edit", "orders", message, "--set", "nte=1"))
    assert "write COLUMN=VALUE" in refusal(ignis("edit", "orders", message, "--set", "note"))
    assert "--set" in refusal(ignis("edit", "orders", message, "--set", "id=many"))
