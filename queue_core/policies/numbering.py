"""Numbers in the place of values: which messages agree in some columns, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption
from queue_core.rows import Numbers


def matched(new: pa.Table, queued: pa.Table, names: Sequence[str]) -> tuple[Numbers, Numbers]:
    """
    A number for the values of some columns, of each new row and of each queued one.

    From 0 on; -1 for a queued row that agrees with no new one. NULL agrees with NULL, and NaN with
    NaN.
    """
    ours = np.zeros(new.num_rows, np.int64)
    theirs = np.zeros(queued.num_rows, np.int64)
    # Queued rows that agree in all columns so far; mostly few are left after the first ones.
    alike = np.arange(queued.num_rows)
    for name in names:
        columns = _plain(new.column(name)), _plain(queued.column(name))
        for mine, other in zip(*columns, strict=True):
            left = other if len(alike) == len(theirs) else other.take(pa.array(alike))
            ours, theirs[alike] = _paired((ours, theirs[alike]), _encoded(mine, left))
            alike = alike[theirs[alike] >= 0]
    return ours, theirs


def comparable(kind: pa.DataType) -> bool:
    """Whether `matched` can tell values of a type apart."""
    if pa.types.is_struct(kind):
        return all(comparable(field.type) for field in kind)
    return not pa.types.is_nested(kind)


def check_comparable(what: str, schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise `BadOption` unless all of some columns can be compared."""
    for name in names:
        if not comparable(schema.field(name).type):
            raise BadOption(
                f"{what}: column {name!r} of type {schema.field(name).type} cannot be compared; "
                "name other columns"
            )


def ranks(groups: Numbers) -> Numbers:
    """How many of its group stand before each element."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(np.append(starts, len(ordered)))
    found = np.empty(len(groups), np.int64)
    found[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    return found


def last_of(groups: Numbers, count: int, rows: Numbers | None = None) -> Numbers:
    """The last element of each group, or -1; *rows* are the elements, where they are not all."""
    found = np.full(count, -1, np.int64)
    found[groups] = np.arange(len(groups)) if rows is None else rows
    return found


def first_of(groups: Numbers, count: int, rows: Numbers | None = None) -> Numbers:
    """The first element of each group, or -1."""
    rows = np.arange(len(groups)) if rows is None else rows
    return last_of(groups[::-1], count, rows[::-1])


def _plain(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """A column of structs as the columns in it, and whether each is null."""
    if pa.types.is_struct(column.type):
        inner = [part for piece in column.flatten() for part in _plain(piece)]
        return [column.is_valid(), *inner]
    if pa.types.is_floating(column.type):
        # Zero has two signs, and they are equal.
        return [pc.add(column, pa.scalar(0.0, column.type))]
    return [column]


def _encoded(new: pa.ChunkedArray, queued: pa.ChunkedArray) -> tuple[Numbers, Numbers]:
    encoded = new.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    known = encoded.dictionary
    theirs = pc.index_in(queued, value_set=known).fill_null(-1)
    return _numbers(encoded.indices), _numbers(theirs)


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    numbers: Numbers = column.to_numpy(**_copying(column)).astype(np.int64)
    return numbers


def _copying(column: pa.Array | pa.ChunkedArray) -> dict[str, bool]:
    return {} if isinstance(column, pa.ChunkedArray) else {"zero_copy_only": False}


def _paired(one: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers]) -> tuple[Numbers, ...]:
    """Numbers for pairs of numbers."""
    width = int(other[0].max(initial=0)) + 1
    if not one[0].any():
        return other[0], np.where(one[1] < 0, -1, other[1])
    pairs = one[0] * width + other[0]
    known, ours = np.unique(pairs, return_inverse=True)
    theirs = one[1] * width + other[1]
    at = np.minimum(np.searchsorted(known, theirs), len(known) - 1)
    agree = (one[1] >= 0) & (other[1] >= 0) & (known[at] == theirs)
    return ours.astype(np.int64), np.where(agree, at, -1)
