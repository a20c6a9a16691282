"""Number messages by their values: equal values have equal numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption
from queue_core.values.names import nearest
from queue_core.values.rows import Numbers


def matched(new: pa.Table, queued: pa.Table, names: Sequence[str]) -> tuple[Numbers, Numbers]:
    """
    Number new and queued rows by their values in some columns, from 0.

    A queued row that equals no new one has -1. NULL equals NULL, and NaN equals NaN.
    """
    new_numbers = np.zeros(new.num_rows, np.int64)
    queued_numbers = np.zeros(queued.num_rows, np.int64)
    # Queued rows that are equal in all columns so far; usually few remain after the first one.
    alike = np.arange(queued.num_rows)
    for name in names:
        columns = _plain(new.column(name)), _plain(queued.column(name))
        for new_column, queued_column in zip(*columns, strict=True):
            remaining = (
                queued_column
                if len(alike) == len(queued_numbers)
                else queued_column.take(pa.array(alike))
            )
            new_numbers, queued_numbers[alike] = _paired(
                (new_numbers, queued_numbers[alike]), _encoded(new_column, remaining)
            )
            alike = alike[queued_numbers[alike] >= 0]
    return new_numbers, queued_numbers


def comparable(kind: pa.DataType) -> bool:
    """Return whether `matched` can compare values of a type."""
    if pa.types.is_struct(kind):
        return all(comparable(field.type) for field in kind)
    return not pa.types.is_nested(kind)


def check_comparable(option: str, schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise `BadOption` for a column that a queue lacks, or that cannot be compared."""
    for name in names:
        if name not in schema.names:
            hint = nearest(name, schema.names)
            raise BadOption(f"{option}: the queue has no column {name!r}{hint}")
        if not comparable(schema.field(name).type):
            raise BadOption(
                f"{option}: column {name!r} of type {schema.field(name).type} cannot be compared; "
                "name other columns"
            )


def ranks(groups: Numbers) -> Numbers:
    """Return how many elements of its group come before each element."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(np.append(starts, len(ordered)))
    found = np.empty(len(groups), np.int64)
    found[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    return found


def last_of(groups: Numbers, count: int, rows: Numbers | None = None) -> Numbers:
    """Return the last element of each group, or -1; *rows* are the elements, by default all."""
    found = np.full(count, -1, np.int64)
    found[groups] = np.arange(len(groups)) if rows is None else rows
    return found


def first_of(groups: Numbers, count: int, rows: Numbers | None = None) -> Numbers:
    """Return the first element of each group, or -1; *rows* are the elements, by default all."""
    rows = np.arange(len(groups)) if rows is None else rows
    return last_of(groups[::-1], count, rows[::-1])


def _plain(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return a column of structs as its inner columns and a column of validity."""
    if pa.types.is_struct(column.type):
        inner = [part for piece in column.flatten() for part in _plain(piece)]
        return [column.is_valid(), *inner]
    if pa.types.is_floating(column.type):
        # Zero has two signs, which are equal.
        return [pc.add(column, pa.scalar(0.0, column.type))]
    return [column]


def _encoded(new: pa.ChunkedArray, queued: pa.ChunkedArray) -> tuple[Numbers, Numbers]:
    encoded = new.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    known = encoded.dictionary
    queued_numbers = pc.index_in(queued, value_set=known).fill_null(-1)
    return _numbers(encoded.indices), _numbers(queued_numbers)


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    numbers: Numbers = np.asarray(column).astype(np.int64)
    return numbers


def _paired(one: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers]) -> tuple[Numbers, ...]:
    """Number pairs of numbers."""
    width = int(other[0].max(initial=0)) + 1
    if not one[0].any():
        return other[0], np.where(one[1] < 0, -1, other[1])
    pairs = one[0] * width + other[0]
    known, ours = np.unique(pairs, return_inverse=True)
    theirs = one[1] * width + other[1]
    at = np.minimum(np.searchsorted(known, theirs), len(known) - 1)
    agree = (one[1] >= 0) & (other[1] >= 0) & (known[at] == theirs)
    return ours.astype(np.int64), np.where(agree, at, -1)
