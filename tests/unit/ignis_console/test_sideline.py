"""The sideline by kind and fingerprint."""

from datetime import UTC, datetime

import pyarrow as pa

from ignis_console.sideline import PER_PAGE, group, members, reasons
from queue_core import VIEWS
from queue_core.values.fingerprints import LENGTH, fingerprints

AT = datetime(2026, 1, 1, tzinfo=UTC)


def words(number):
    """Return a number in letters, which no fingerprint leaves out."""
    return str(number).translate(str.maketrans("0123456789", "ghijklmnop"))


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
    table = pa.Table.from_pylist(found, schema=VIEWS["sideline"])
    alike = fingerprints(table.column("kind"), table.column("reason"))
    return table.set_column(table.num_columns - 1, "fingerprint", alike)


def test_messages_are_grouped_by_kind_and_fingerprint():
    rows = view(
        ("exception", "KeyError: 'sku'\n  line 1", False),
        ("exception", "KeyError: 'size'\r\n  line 2", True),
        ("timeout", "KeyError: 'sku'", False),
        ("swept", None, False),
        (None, None, False),
    )

    found = group(rows)

    assert (found.messages, found.all_groups) == (5, 4)
    first = found.groups[0]
    assert (first.kind, first.fingerprint, first.messages, first.dead) == (
        "exception",
        "KeyError: *",
        2,
        1,
    )
    assert first.first_sidelined < first.last_sidelined
    assert {(each.kind, each.fingerprint) for each in found.groups[1:]} == {
        ("timeout", "KeyError: *"),
        ("swept", None),
        (None, None),
    }


def test_each_group_has_its_messages_newest_first():
    rows = view(("a", "x\n1", False), ("a", "x\n2", False), ("a", None, False), (None, None, False))

    assert members(rows, "a", "x").column("message_id").to_pylist() == [1, 0]
    assert members(rows, "a", None).column("message_id").to_pylist() == [2]
    assert members(rows, None, None).column("message_id").to_pylist() == [3]
    assert members(rows, "b", "x").num_rows == 0


def test_a_group_has_the_first_lines_of_its_reasons():
    lines = ["no box 7\n1", "no box 7\n2", "no box 8"]
    rows = view(
        *(("a", line, number == 2) for number, line in enumerate(lines)), ("b", "no", False)
    )
    found = members(rows, "a", "no box *")

    assert [(e.reason, e.messages, e.dead) for e in reasons(found)] == [
        ("no box 7", 2, 0),
        ("no box 8", 1, 1),
    ]
    assert members(rows, "a", "no box *", "no box 7").num_rows == 2
    assert members(rows, "a", None, "no box 8").num_rows == 1
    assert members(rows, "a", None).num_rows == 0


def test_an_empty_sideline_has_no_groups():
    assert group(view()).groups == ()


def test_long_lines_are_cut():
    (found,) = group(view(("a", "x" * 2000, False))).groups

    assert len(found.fingerprint) == LENGTH


def test_each_of_many_groups_is_on_a_page():
    rows = view(*(("a", f"reason {words(number)}", False) for number in range(2 * PER_PAGE + 5)))

    pages = [group(rows, page=page) for page in (1, 2, 3)]

    assert [len(page.groups) for page in pages] == [PER_PAGE, PER_PAGE, 5]
    assert len({each.fingerprint for page in pages for each in page.groups}) == 2 * PER_PAGE + 5
    assert {(page.pages, page.found, page.all_groups) for page in pages} == {(3, 205, 205)}
    assert group(rows, page=9).page == 3


def test_groups_are_searched_by_kind_and_reason():
    rows = view(
        ("timeout", "slow", False),
        ("exception", "Time 7 is up", False),
        ("exception", "Time 8 is up", False),
        ("x", None, True),
    )

    found = group(rows, "TIME")

    assert {each.kind for each in found.groups} == {"timeout", "exception"}
    assert (found.found, found.all_groups, found.messages) == (2, 3, 4)
    (found,) = group(rows, "time 8").groups
    assert (found.fingerprint, found.messages) == ("Time * is up", 2)
    assert group(rows, "(").groups == ()
