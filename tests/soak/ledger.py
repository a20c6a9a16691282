"""The entries of a history as tables, for the checker.

It joins each outcome to its intent. A load without an outcome was cut off by a kill, and may have
happened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

_TABLES = """
CREATE TABLE attempts (queue, number INTEGER, key, begun REAL, ended REAL, status);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY, queue, number INTEGER, message INTEGER, life, begun REAL, at REAL,
    fired INTEGER, attempt INTEGER, altered INTEGER, key
);
CREATE TABLE settles (queue, number INTEGER, life, outcome, begun REAL, ended REAL, status);
CREATE TABLE lives (life, begun REAL, ended REAL);
CREATE TABLE faults (name, begun REAL, ended REAL, life);
CREATE TABLE restores (copied REAL, begun REAL, ended REAL);
CREATE TABLE sizes (queue, size INTEGER, bound INTEGER);
CREATE TABLE errors (life, kind, at REAL);
"""
_INDEXES = """
CREATE INDEX a ON attempts (queue, number);
CREATE INDEX k ON attempts (queue, key, number);
CREATE INDEX d ON deliveries (queue, number, at);
CREATE INDEX s ON settles (queue, number);
CREATE INDEX l ON lives (life);
CREATE INDEX f ON faults (begun);
"""
#: The time of the end of an action that never ended.
NEVER = 1e18

#: Numbers of one producer: its life is in the bits above.
NUMBERS_BITS = 24

Entry = dict[str, Any]


def key_of(number: int, keys: int) -> str:
    """Return the key of a message; each producer has keys of its own."""
    return f"{number >> NUMBERS_BITS}/{number % keys}"


def ledger(entries: Iterable[Entry]) -> sqlite3.Connection:
    """Return the entries as tables of a database in memory."""
    database = sqlite3.connect(":memory:")
    database.executescript(_TABLES)
    loads: dict[tuple[str, int], Entry] = {}
    settles: dict[tuple[str, int], Entry] = {}
    faults: dict[int, Entry] = {}
    for entry in entries:
        match entry["what"]:
            case "loading":
                loads[entry["life"], entry["load"]] = {"outcome": None, "end": None, **entry}
            case "loaded" | "refused" | "unknown":
                begun = loads[entry["life"], entry["load"]]
                begun |= {"outcome": entry["what"], "end": entry["at"]}
            case "delivered":
                _add_delivery(database, entry)
            case "settling":
                settles[entry["life"], entry["settle"]] = {"status": None, "end": None, **entry}
            case "settled":
                begun = settles[entry["life"], entry["settle"]]
                done = entry["held"] == sum(len(begun[name]) for name in _OUTCOMES)
                begun |= {"status": "done" if done else "partly", "end": entry["at"]}
            case "died":
                row = entry["name"], entry.get("begun", entry["at"]), entry["at"]
                database.execute("INSERT INTO lives VALUES (?, ?, ?)", row)
            case "fault":
                faults[entry["fault"]] = {"end": NEVER, **entry}
            case "concerns":
                faults[entry["fault"]]["of"] = entry["of"]
            case "healed":
                faults[entry["fault"]]["end"] = entry["at"]
            case "restored":
                row = entry["copied"], entry["begun"], entry["at"]
                database.execute("INSERT INTO restores VALUES (?, ?, ?)", row)
            case "size":
                row = entry["queue"], entry["size"], entry["bound"]
                database.execute("INSERT INTO sizes VALUES (?, ?, ?)", row)
            case "error":
                row = entry["life"], entry["kind"], entry["at"]
                database.execute("INSERT INTO errors VALUES (?, ?, ?)", row)
    for load in loads.values():
        _add_load(database, load)
    for settle in settles.values():
        _add_settle(database, settle)
    database.executemany(
        "INSERT INTO faults VALUES (?, ?, ?, ?)",
        [(f["name"], f["at"], f["end"], f.get("of")) for f in faults.values()],
    )
    database.executescript(_INDEXES)
    return database


_OUTCOMES = ("delete", "reload", "sideline")


def _add_load(database: sqlite3.Connection, load: Entry) -> None:
    rows = [
        (
            load["queue"],
            number,
            key_of(number, load["keys"]),
            load["at"],
            load["end"],
            load["outcome"],
        )
        for number in range(load["first"], load["first"] + load["count"])
    ]
    database.executemany("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)", rows)


def _add_delivery(database: sqlite3.Connection, entry: Entry) -> None:
    altered = set(entry.get("altered", ()))
    together = zip(entry["numbers"], entry["messages"], entry["attempts"], strict=True)
    rows = [
        (
            entry["queue"],
            number,
            message,
            entry["life"],
            entry["begun"],
            entry["at"],
            entry.get("fired"),
            attempt,
            number in altered,
            key_of(number, entry["keys"]),
        )
        for number, message, attempt in together
    ]
    values = "INSERT INTO deliveries VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    database.executemany(values, rows)


def _add_settle(database: sqlite3.Connection, settle: Entry) -> None:
    rows = [
        (
            settle["queue"],
            number,
            settle["life"],
            outcome,
            settle["at"],
            settle["end"],
            settle["status"],
        )
        for outcome in _OUTCOMES
        for number in settle[outcome]
    ]
    database.executemany("INSERT INTO settles VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
