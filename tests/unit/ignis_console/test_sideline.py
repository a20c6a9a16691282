"""The sideline by kind and first line of the reason."""

from datetime import UTC, datetime

import pyarrow as pa

from ignis_console.sideline import LINE_LENGTH, PER_PAGE, group, members
from queue_core import VIEWS

AT = datetime(2026, 1, 1, tzinfo=UTC)


def view(*rows):
    found = [
        {
            "queue": "orders",
            "message_id": number,
            "shard": 0,
            "attempts": 1,
            "deliveries": 1,
            "sidelined_at": AT.replace(minute=number % 60),
            "due_at": None,
            "dead": dead,
            "kind": kind,
            "reason": reason,
        }
        for number, (kind, reason, dead) in enumerate(rows)
    ]
    return pa.Table.from_pylist(found, schema=VIEWS["sideline"])


def test_messages_are_grouped_by_kind_and_first_line():
    rows = view(
        ("exception", "KeyError: 'sku'\n  line 1", False),
        ("exception", "KeyError: 'sku'\r\n  line 2", True),
        ("timeout", "KeyError: 'sku'", False),
        ("swept", None, False),
        (None, None, False),
    )

    found = group(rows)

    assert (found.messages, found.all_groups) == (5, 4)
    first = found.groups[0]
    assert (first.kind, first.reason, first.messages, first.dead) == (
        "exception",
        "KeyError: 'sku'",
        2,
        1,
    )
    assert first.first_sidelined < first.last_sidelined
    assert {(each.kind, each.reason) for each in found.groups[1:]} == {
        ("timeout", "KeyError: 'sku'"),
        ("swept", None),
        (None, None),
    }


def test_each_group_has_its_messages_newest_first():
    rows = view(("a", "x\n1", False), ("a", "x\n2", False), ("a", None, False), (None, None, False))

    assert members(rows, "a", "x").column("message_id").to_pylist() == [1, 0]
    assert members(rows, "a", None).column("message_id").to_pylist() == [2]
    assert members(rows, None, None).column("message_id").to_pylist() == [3]
    assert members(rows, "b", "x").num_rows == 0


def test_an_empty_sideline_has_no_groups():
    assert group(view()).groups == ()


def test_long_lines_are_cut():
    (found,) = group(view(("a", "x" * 2000, False))).groups

    assert len(found.reason) == LINE_LENGTH


def test_each_of_many_groups_is_on_a_page():
    rows = view(*(("a", f"reason {number}", False) for number in range(2 * PER_PAGE + 5)))

    pages = [group(rows, page=page) for page in (1, 2, 3)]

    assert [len(page.groups) for page in pages] == [PER_PAGE, PER_PAGE, 5]
    assert len({each.reason for page in pages for each in page.groups}) == 2 * PER_PAGE + 5
    assert {(page.pages, page.found, page.all_groups) for page in pages} == {(3, 205, 205)}
    assert group(rows, page=9).page == 3


def test_groups_are_searched_by_kind_and_reason():
    rows = view(("timeout", "slow", False), ("exception", "Time is up", False), ("x", None, True))

    found = group(rows, "TIME")

    assert {each.kind for each in found.groups} == {"timeout", "exception"}
    assert (found.found, found.all_groups, found.messages) == (2, 3, 3)
    assert group(rows, "(").groups == ()
