"""Names are refused before they reach SQL, a path or a DataFrame."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import BadName
from queue_core.values.names import (
    check_columns,
    check_consumer,
    check_queue,
    is_of_process,
    is_of_query,
    listed,
    near_first,
    nearest,
    of_process,
    of_query,
    speaking,
)

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "'; drop table queues; --",
    'a"b',
    "a b",
    " a",
    "a\n",
    "a\x00b",
    "-a",
    "_a",
    "1a",
    "größe",
    "a" * 129,
    "%41",
    "~",
    None,
    7,
    b"orders",
]


@pytest.mark.parametrize(
    ("check", "name"),
    [
        *((check_queue, name) for name in ("a", "orders", "Orders_2.new-ones", "a" * 128, "a..b")),
        *((check_consumer, name) for name in ("a", "7", "python:host-1.local:42:0af3", "a" * 200)),
        (check_consumer, "me@home"),
    ],
)
def test_a_plain_name_is_allowed(check, name):
    assert check(name) == name


@pytest.mark.parametrize(
    ("check", "name"),
    [
        *((check_queue, name) for name in HOSTILE),
        *((check_consumer, name) for name in ("", "../x", "a b", "-a", "a\n", "a'b", None)),
        (check_consumer, "a" * 201),
    ],
)
def test_any_other_name_is_refused_and_quoted(check, name):
    with pytest.raises(BadName) as refusal:
        check(name)

    assert repr(name) in str(refusal.value)


@given(st.text())
def test_whatever_text_is_allowed_is_one_harmless_folder_name(text):
    try:
        name = check_queue(text)
    except BadName:
        return
    assert name not in {".", ".."}
    assert name.isascii()
    assert not set(name) & set("/\\'\";:%~ \x00")


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["größe", "with space", "a.b", "'"], ["_a"]])
def test_columns_may_have_any_printable_name(names):
    check_columns(names, reserved=["_queue"])


@pytest.mark.parametrize(
    ("names", "culprit"),
    [
        ([""], "''"),
        (["a", "x" * 256], "xxx"),
        (["tab\t"], r"tab\\t"),
        (["_queue"], "'_queue' is reserved"),
        (["_Queue"], "'_Queue' is reserved"),
        (["amount", "Amount"], "'amount' and 'Amount' differ only in case"),
        (["amount", "b", "amount"], "column 'amount' appears twice"),
        (["a", "a"], "column 'a' appears twice"),
    ],
)
def test_columns_that_would_be_confused_are_refused_by_name(names, culprit):
    with pytest.raises(BadName, match=culprit):
        check_columns(names, reserved=["_queue"])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ordesr", "; did you mean 'Orders'?"),
        ("ORDERS", "; did you mean 'Orders'?"),
        ("payment", "; did you mean 'payments'?"),
        ("zebra", ""),
    ],
)
def test_the_nearest_name_is_suggested_when_one_is_near(name, hint):
    assert nearest(name, ["Orders", "payments"]) == hint
    assert nearest(name, []) == ""


def test_of_many_names_a_few_are_listed_and_near_ones_first():
    known = [f"payments-{number:03}" for number in range(500)] + ["orders", "borders"]

    assert listed(near_first("ordrs", known)) == (
        "orders,borders,payments-000,payments-001,payments-002 and 497 more"
    )
    assert listed(["a", "b"] * 600, spaced=True) == "a, b, a, b, a and 1,195 more"
    assert near_first("zebra", ["b", "a"]) == ["a", "b"]


def test_the_name_of_a_new_query_is_its_own_and_tells_its_queues_and_its_host():
    assert check_consumer(of_query()) != of_query()
    assert is_of_query(of_query())
    name = check_consumer(of_query(["orders", "pay"]))
    assert name.startswith(f"spark:orders-pay:{socket.gethostname()[:80]}:")
    assert is_of_query(name)
    for other in ("reader", "spark:", "spark:reader", "spark:" + "0" * 33):
        assert not is_of_query(other), other


def test_the_name_of_a_process_is_known_as_one():
    for prefix in ("python:", "pool:", "keeper:"):
        assert is_of_process(prefix + of_process())
    for other in (of_process(), of_query(), "python:3", "pool:main:1:0123abc"):
        assert not is_of_process(other), other


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("charge", "charge"),
        ("<lambda>", "lambda"),
        ("a b/ü", "a-b"),
        ("-", ""),
        ("x" * 99, "x" * 60),
    ],
)
def test_a_text_becomes_a_part_of_a_name(text, told):
    assert speaking(text) == told
    check_consumer(f"pool:{told}@here")
