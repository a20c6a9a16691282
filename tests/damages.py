"""Random damages of a store: one value of one row, or one file; and all that users see of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from sqlalchemy import Integer, LargeBinary, SmallInteger, String, select, update
from sqlalchemy.exc import DBAPIError

from queue_core import Store
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.record_tables import publications
from queue_core.catalog.tables import metadata
from queue_core.values.views import VIEWS

#: The time of the last heartbeat changes each second, and nobody can know whether it is right.
_UNKNOWABLE = {(consumers.name, "heartbeat_at"), (publications.name, "published_at")}
#: What the catalog keeps about itself and about processes that run. Checks of its own guard it.
_UNSEEN = {"facts", "locks", "clocks", "leases", "waiters", "schedule"}
#: Figures of the past, which no decision needs.
_UNSEEN |= {"samples"}


def spoil_files(store: Store) -> dict[Path, bytes]:
    """Overwrite all files with zeros; return them with their bytes from before."""
    files = [Path(store.storage.uri, location) for location in store.storage.list()]
    whole = {file: file.read_bytes() for file in files}
    for file, data in whole.items():
        file.write_bytes(bytes(len(data)))
    return whole


def visible(store: Store) -> dict[str, Any]:
    """All that a user sees: views and messages, and last the messages that a firing takes."""
    seen: dict[str, Any] = {}
    for name in VIEWS:
        seen[name] = _answer(lambda name=name: sorted(map(repr, _view(store, name).to_pylist())))
    for name in _answer(store.queues) or []:
        for magazine in ("main", "sideline"):
            seen[name, magazine] = _answer(
                lambda name=name, magazine=magazine: (
                    store.queue(name).browse(magazine=magazine).to_pylist()
                )
            )
            for selector in (None, "number >= 7 AND amount < 12"):
                seen[name, magazine, selector] = _answer(
                    lambda name=name, magazine=magazine, selector=selector: (
                        store.queue(name)
                        .peek(1_000, magazine=magazine, selector=selector)
                        .to_pylist()
                    )
                )
    for name in _answer(store.queues) or []:
        seen[name, "fire"] = _answer(
            lambda name=name: (
                store.queue(name).fire(1_000).messages.drop_columns(["_fired_at"]).to_pylist()
            )
        )
    return seen


def _view(store: Store, name: str) -> Any:
    table = store.view(name)
    # An age is another one at each look.
    return table.drop_columns(["oldest_age", "longest_wait"]) if name == "queues" else table


def _answer(look: Any) -> Any:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - damaged rows may raise anything
        return type(error).__name__


def damage(store: Store, rng: random.Random) -> str:
    """Damage one value of one row, or one file; return a description."""
    while True:
        done = _damage_file(store, rng) if rng.random() < 0.15 else _damage_row(store, rng)
        if done is not None:
            return done


def _damage_row(store: Store, rng: random.Random) -> str | None:
    tables = [table for table in metadata.sorted_tables if table.name not in _UNSEEN]
    weights = [6 if table.name in ("slices", "segments") else 1 for table in tables]
    (table,) = rng.choices(tables, weights)
    with store.catalog.read() as connection:
        keys = list(table.primary_key)
        rows = connection.execute(select(table).order_by(*keys)).all()
    if not rows:
        return None
    row = rng.choice(rows)
    column = rng.choice([column for column in table.c if column.name != "seal"])
    if (table.name, column.name) in _UNKNOWABLE:
        return None
    old = getattr(row, column.name)
    new = _other(column, old, rng, rows)
    if new == old:
        return None
    here = [key == getattr(row, key.name) for key in keys]
    try:
        store.catalog.write(
            lambda connection: connection.execute(
                update(table).where(*here).values({column.name: new})
            )
        )
    except Exception as error:
        if isinstance(error, DBAPIError) or isinstance(error.__cause__, DBAPIError):
            # The database refuses it: another row has that key.
            return None
        raise
    place = {key.name: getattr(row, key.name) for key in keys}
    return f"{table.name} {place}: {column.name} from {old!r} to {new!r}"


def _other(column: Any, old: Any, rng: random.Random, rows: list[Any]) -> Any:
    """Return another plausible value of a column."""
    if rng.random() < 0.2:
        # That of another row.
        return getattr(rng.choice(rows), column.name)
    if column.nullable and rng.random() < 0.1:
        return None
    if old is None:
        bits = {SmallInteger: 8, Integer: 16}
        if isinstance(column.type, LargeBinary):
            return rng.randbytes(20)
        if isinstance(column.type, String):
            return rng.choice(["{}", "x", '{"amount": [0, 1]}'])
        return rng.randrange(1 << bits.get(type(column.type), 20))
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        top = 14 if isinstance(column.type, SmallInteger) else 30
        if not isinstance(column.type, Integer):
            top = 50
        return rng.choice([old ^ 1 << rng.randrange(top), old + 1, max(old - 1, 0), 0])
    if isinstance(old, str):
        if not old:
            return "x"
        at = rng.randrange(len(old))
        return old[:at] + chr(ord(old[at]) ^ 1 << rng.randrange(4)) + old[at + 1 :]
    if isinstance(old, bytes):
        if not old:
            return b"x"
        changed = bytearray(old)
        changed[rng.randrange(len(old))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    raise AssertionError(f"no other value for {old!r}")


def _damage_file(store: Store, rng: random.Random) -> str | None:
    root = Path(store.storage.uri)
    files = sorted(root / location for location in store.storage.list())
    if len(files) < 2:
        return None
    file, other = rng.sample(files, 2)
    kind = rng.choice(["truncate", "flip", "remove", "swap"])
    if kind == "remove":
        file.unlink()
    elif kind == "truncate":
        file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])
    elif kind == "flip":
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    else:
        shutil.move(file, root / "aside")
        shutil.move(other, file)
        shutil.move(root / "aside", other)
    return f"{kind} {file.name}"
