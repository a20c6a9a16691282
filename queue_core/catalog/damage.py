"""Rows of the catalog that cannot be understood: `DamagedCatalog`, which names the row."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import Table

from queue_core.errors import BadOption, DamagedCatalog

Result = TypeVar("Result")

#: Attempts to read while others remove what is about to be looked at.
TRIES = 4

#: What a damaged value makes a decoder raise; JSON of another shape, an `AttributeError`.
UNREADABLE = (
    AttributeError,
    LookupError,
    # Arrow raises it for a schema or a message whose Flatbuffers are invalid.
    OSError,
    OverflowError,
    TypeError,
    ValueError,
    pa.ArrowException,
    struct.error,
)


def damaged(table: Table, row: str, reason: object) -> DamagedCatalog:
    """Return the error for a row, such as ``id 5``, that cannot be understood."""
    return DamagedCatalog(
        f"the catalog's table {table.name} is damaged: its row with {row} cannot be understood "
        f"({reason}); nothing was changed: run `ignis fsck`, or restore the catalog from a backup"
    )


class decoding(AbstractContextManager[object]):
    """Raises `DamagedCatalog` where the block cannot understand a row."""

    def __init__(self, table: Table, row: str) -> None:
        self._table = table
        self._row = row

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, (*UNREADABLE, BadOption)):
            raise damaged(self._table, self._row, error) from error


def beside_settlements(read: Callable[[], Result]) -> Result:
    """
    Return what *read* returns, and call it again if it finds damage.

    In a transaction that writes, each statement may see a newer state, where slices or segments
    that an earlier one has seen are gone. Real damage stays.
    """
    for _ in range(TRIES - 1):
        with suppress(DamagedCatalog):
            return read()
    return read()
