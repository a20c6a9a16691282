"""The comparison with other queues is complete and fair, and each of its notes is used."""

import re

import pytest

from tests.tree import ROOT

PAGE = ROOT.joinpath("docs/comparison.md").read_text()
PEERS = ["Kafka", "RabbitMQ", "SQS", "NATS", "PgQue", "Queen", "Zerobus", "River", "Oban"]
MARKS = {*"✓◐✗?", "\N{EN DASH}"}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith("|---")
]
NOTES = {
    name: " ".join(text.split())
    for name, text in re.findall(
        r"^\[\^([\w-]+)\]: (.+?)(?=^\S|\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
}


def mark(cell: str) -> str:
    return re.sub(r"\[\^[\w-]+\]", "", cell)


def test_all_of_them_are_compared():
    head, *rows = ROWS

    assert head == ["", "ignis", *PEERS]
    assert len(rows) >= 15
    for row in rows:
        assert len(row) == len(head), row[0]
        assert {mark(cell) for cell in row[1:]} <= MARKS, row[0]


def test_the_legend_explains_each_mark():
    legend = PAGE.partition("\n| |")[0]

    assert [each for each in MARKS if each not in legend] == []


def test_what_is_partly_so_has_a_note():
    """So has what a system lacks of which one might think that it has it."""
    bare = [(row[0], cell) for row in ROWS[1:] for cell in row[1:] if cell == "◐"]

    assert bare == []


def test_each_note_is_used_and_exists():
    used = {name for row in ROWS for cell in row for name in re.findall(r"\[\^([\w-]+)\]", cell)}

    assert used == set(NOTES)


@pytest.mark.parametrize("peer", PEERS)
def test_what_is_said_of_a_peer_has_sources(peer):
    column = ROWS[0].index(peer)
    notes = {name for row in ROWS[1:] for name in re.findall(r"\[\^([\w-]+)\]", row[column])}
    sources = {link for name in notes for link in re.findall(r"\]\((https://[^)]+)\)", NOTES[name])}

    assert sources, peer


def test_it_is_fair():
    """It has rows in which ignis is behind, and says of each system when to prefer it."""
    behind = [row for row in ROWS[1:] if mark(row[1]) == "✗" and "✓" in map(mark, row[2:])]
    advice = PAGE.partition("\n## Which one\n")[2]

    assert len(behind) >= 3
    assert [peer for peer in PEERS if f"**{peer}" not in advice] == []


def test_the_figures_are_those_of_the_page_of_figures():
    measured = ROOT.joinpath("docs/performance.md").read_text()
    told = NOTES["latency"]

    for peer, figure in (
        ("ignis, PostgreSQL, a pool", 23),
        ("ignis, SQLite, a pool", 14),
        ("RabbitMQ, quorum", 3.2),
        ("NATS JetStream", 1.5),
    ):
        row = re.search(rf"^\| 10 s: to its handler \| {peer} \|  \|  \| ([\d.]+) ", measured, re.M)
        assert row, peer
        assert abs(float(row[1]) - figure) < figure / 20, peer
        assert f"{figure:g} ms" in told
    assert "median 57 ms" in measured
    assert "57 ms" in told
