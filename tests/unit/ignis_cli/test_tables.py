"""Tables of the command line: they fit the terminal, a pipe gets TSV, and a program objects."""

import io
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from rich.console import Console

from ignis_cli.commands_inspect import FIRST
from ignis_cli.display import in_json
from ignis_cli.tables import cell, grid, show
from queue_core.values.views import VIEWS

ROWS = pa.table(
    {
        "queue": ["acme.orders", "globex.a_name_that_is_so_long_that_it_is_folded"],
        "waiting": [1_841_186, None],
        "oldest_age": [1274.5, None],
        "in_flight": [5, 0],
        "state": ["active", "paused"],
    }
)


def shown(rows: pa.Table, width: int) -> tuple[list[str], list[str]]:
    out = io.StringIO()
    table, left_out = grid(rows, width)
    Console(file=out, width=width, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()], left_out


def test_a_wide_terminal_shows_all_in_one_line_each():
    lines, left_out = shown(ROWS, 200)

    assert left_out == []
    assert [line.split() for line in lines[:2]] == [
        ["queue", "waiting", "oldest", "in_flight", "state"],
        ["acme.orders", "1,841,186", "21", "min", "5", "active"],
    ]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(60, []), (50, ["state"]), (40, ["in_flight", "state"]), (5, ROWS.column_names[1:])],
)
def test_a_narrow_terminal_leaves_out_the_last_columns_and_breaks_no_number(width, left_out):
    lines, found = shown(ROWS, width)

    assert found == left_out
    assert max(map(len, lines)) <= width
    if "waiting" not in left_out:
        assert "1,841,186" in lines[1]


def test_a_column_that_fits_is_shown_after_one_that_does_not():
    rows = pa.table({"id": [1], "at": [datetime(2026, 11, 27, tzinfo=UTC)], "n": [7]})

    assert shown(rows, 12) == (["id  n", " 1  7"], ["at"])


@pytest.mark.parametrize(
    ("view", "width", "needed"),
    [
        ("slices", 60, "queue consumer fired_at"),
        ("slices", 80, "queue consumer fired_at messages"),
        ("sideline", 60, "queue message_id dead kind reason"),
        ("sideline", 80, "queue message_id dead kind reason due_at"),
        ("acts", 60, "begun_at who verb queue messages"),
        ("acts", 80, "begun_at who verb queue messages chosen"),
        ("acts", 120, "begun_at who verb queue messages chosen selector by"),
        ("consumers", 60, "consumer in_flight heartbeat_at host"),
        ("consumers", 80, "consumer in_flight heartbeat_at host pid"),
        ("shards", 60, "queue magazine shard waiting in_flight"),
    ],
)
def test_a_narrow_terminal_shows_what_one_needs_of_a_view(view, width, needed):
    at, text = datetime(2026, 11, 27, tzinfo=UTC), "a longer text, such as a reason"
    short = {"queue": "orders", "who": "carol", "verb": "pause", "host": "vm"}
    short |= {"kind": "exception", "magazine": "main", "by": "command line", "state": "fired"}
    row = {}
    for field in VIEWS[view]:
        kinds = {pa.timestamp("us", "UTC"): at, pa.string(): short.get(field.name, text)}
        row[field.name] = kinds.get(field.type, 20971)
    rows = pa.Table.from_pylist([row])
    lines, _ = shown(
        rows.select([*dict.fromkeys([*FIRST[view].split(), *rows.column_names])]), width
    )

    assert lines[0].split()[: len(needed.split())] == needed.split()


def test_a_pipe_gets_one_line_for_each_row_with_plain_values(capsys):
    # A command with --json, which another test has run, would have changed it.
    in_json.set(False)
    at = datetime(2026, 11, 27, 8, 30, tzinfo=UTC)
    rows = pa.table({"text": ["a\tb\nc\\", "\x1b[31m"], "n": [12345, None], "at": [at, at]})

    show(rows)

    assert capsys.readouterr().out == (
        "text\tn\tat\n"
        "a\\tb\\nc\\\t12345\t2026-11-27T08:30:00+00:00\n"
        "\\x1b[31m\t\t2026-11-27T08:30:00+00:00\n"
    )


def test_figures_have_their_units():
    assert cell("bytes", 22_300) == "22.3 kB"
    assert cell("oldest_age", 7500.0) == "2 h 5 min"
    assert cell("_message_id", 1048611) == "1048611"
    assert cell("pid", 48611) == "48611"
