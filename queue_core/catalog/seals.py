"""Seals: a checksum in each row that matters, by which a damaged value is found.

A seal is a sum. It adds up each number of the row, or its remainder, times the weight of its
column, and a hash of the texts. So a statement that adds to a value can add to the seal as well,
and the seal of a row with a damaged value stays wrong, even if other values change later. Numbers
that the database assigns during the insert are not in the seal.

Each INSERT seals its rows by itself, by a default of the column ``seal``. An UPDATE gets its values
from `changing`, or from `change` where it changes a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import xxhash
from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    LargeBinary,
    String,
    Table,
    bindparam,
    literal_column,
    select,
    update,
)

from queue_core.values.rows import Numbers

#: Remainders of the division by this prime: each single bit of a number changes them.
PRIME = 2**31 - 1
_HASH_BITS = 40

#: Tables of small numbers that grow. Their seals have the numbers themselves, so that a statement
#: can add to a number without knowing it.
_GROWING = ("shards", "shard_locks", "counters", "consumers", "logs")

#: Columns that no seal covers, by table: times that the database assigns, and values that change
#: with each heartbeat, life or trim. Other checks of `queue_core.catalog.checks` cover them.
_UNSEALED = {
    "segments": {"loaded_at", "data", "log_rows"},
    "consumers": {"heartbeat_at", "ack", "host", "pid"},
    "shards": {"version"},
    "shard_locks": {"version", "head", "head_released"},
    "counters": {"version"},
    "tickets": {"planned_at", "lives", "planned_epoch"},
    "publications": {"published_at"},
    "acts": {"messages", "ended_at", "error"},
    "jobs": {"state", "moved", "due_at", "ended_at", "error"},
}


def of_insert(context: Any) -> int:
    """Return the seal of the row that a statement inserts: the default of the column ``seal``."""
    statement = context.compiled.statement
    assert statement.select is None, "rows that the database selects are unknown here"
    return seal(statement.table, context.get_current_parameters())


def seal(table: Table, row: Mapping[str, Any]) -> int:
    """Return the seal of a row; columns that *row* lacks are null."""
    numbers, texts, plain = _columns(table)
    total = 0
    for name, weight in numbers.items():
        value = row.get(name)
        if value is None:
            total -= weight
        elif plain or 0 <= value < PRIME:
            total += weight * value
        else:
            total += weight * _number(value, plain)
    return total + digest([row.get(name) for name in texts]) if texts else total


def digest(texts: Sequence[str | bytes | None]) -> int:
    """Return the part of a seal that the texts of a row give; 0 if all are null."""
    if texts.count(None) == len(texts):
        return 0
    hashed = xxhash.xxh3_64()
    for text in texts:
        data = b"" if text is None else text.encode() if isinstance(text, str) else text
        hashed.update(b"-" if text is None else len(data).to_bytes(8, "big"))
        hashed.update(data)
    return hashed.intdigest() >> (64 - _HASH_BITS)


def changing(table: Table, **values: Any) -> dict[str, Any]:
    """
    Return the values of an UPDATE with the new seal.

    The values are numbers. In a table of numbers that grow, they may be computed by SQL. A row with
    a version gets the next one.
    """
    weights, _, plain = _columns(table)
    known, seal = 0, table.c.seal - _numbers_in_sql(table, tuple(sorted(values)))
    for name, value in values.items():
        if isinstance(value, ColumnElement):
            assert plain, f"the numbers of {table.name} are sealed by their remainders"
            seal += value * weights[name]
        else:
            known += weights[name] * _number(value, plain)
    return values | {"seal": seal + known} | _versioned(table)


def resealing(
    table: Table, names: Iterable[str], gain: ColumnElement[int] | None = None
) -> ColumnElement[int]:
    """Return the new seal of an UPDATE of some numbers; *gain*: by default, a parameter `gain`."""
    gain = bindparam("gain", type_=BigInteger) if gain is None else gain
    return table.c.seal + gain - _numbers_in_sql(table, tuple(sorted(names)))


def gain(table: Table, values: Mapping[str, int | None]) -> dict[str, int]:
    """Return the parameter of `resealing` for the new values."""
    weights, _, plain = _columns(table)
    return {"gain": sum([weights[name] * _number(of, plain) for name, of in values.items()])}


def gains(table: Table, values: Mapping[str, Numbers]) -> Numbers:
    """Return what `gain` would for each row of columns, in which -1 stands for null."""
    weights, _, _ = _columns(table)
    rests = (weights[name] * np.where(of < 0, of, of % PRIME) for name, of in values.items())
    return np.asarray(sum(rests), np.int64)


def weight(table: Table, column: str) -> int:
    """Return by how much a seal grows when a small number of the row grows by one."""
    return _columns(table)[0][column]


def change(
    connection: Connection, table: Table, *where: ColumnElement[bool], **values: Any
) -> bool:
    """
    Change values of one row; return whether it is there.

    The seal of a damaged row stays wrong.
    """
    found = connection.execute(select(table).where(*where).with_for_update()).first()
    if found is None:
        return False
    row = found._asdict()
    more = seal(table, {**row, **values}) - seal(table, row)
    new = values | {"seal": table.c.seal + more} | _versioned(table)
    connection.execute(update(table).where(*where).values(new))
    return True


def numbers_in_sql(table: Table) -> ColumnElement[int]:
    """Return the part of the seal that the numbers give, as SQL."""
    return _numbers_in_sql(table, tuple(_columns(table)[0]))


@lru_cache(maxsize=256)
def _numbers_in_sql(table: Table, names: tuple[str, ...]) -> ColumnElement[int]:
    weights, _, plain = _columns(table)
    terms = []
    for name in names:
        term = f"{table.name}.{name}"
        if isinstance(table.c[name].type, Boolean):
            term = f"CASE WHEN {term} THEN 1 WHEN NOT {term} THEN 0 END"
        elif not isinstance(table.c[name].type, BigInteger):
            # PostgreSQL would multiply small columns as small numbers. They need no remainder.
            term = f"CAST({term} AS BIGINT)"
        elif not plain:
            term += f" % {PRIME}"
        if table.c[name].nullable:
            term = f"coalesce({term}, -1)"
        terms.append(f"({term}) * {weights[name]}")
    # As one text, because a statement with an element for each column takes longer to compile.
    return literal_column(f"({' + '.join(terms)})", BigInteger)


@lru_cache(maxsize=64)
def _columns(table: Table) -> tuple[Mapping[str, int], tuple[str, ...], bool]:
    """Return the numbers of a row with their weights, its texts, and whether they are plain."""
    left_out = {"seal"} | _UNSEALED.get(table.name, set())
    own = table.autoincrement_column
    if own is not None and own.autoincrement is True:
        # The database assigns it.
        left_out |= {own.name}
    numbers: dict[str, int] = {}
    texts: list[str] = []
    for column in table.c:
        if column.name in left_out:
            continue
        if isinstance(column.type, String | LargeBinary):
            texts.append(column.name)
        else:
            # The weights differ, so that two swapped values change the seal.
            numbers[column.name] = 101 + 2 * len(numbers)
    return numbers, tuple(texts), table.name in _GROWING


def _versioned(table: Table) -> dict[str, Any]:
    return {"version": table.c.version + 1} if "version" in table.c else {}


def _number(value: int | None, plain: bool) -> int:
    if value is None:
        return -1
    if plain:
        return value
    # A remainder as SQL has it, with the sign of the number.
    return value % PRIME if value >= 0 else -(-value % PRIME)
