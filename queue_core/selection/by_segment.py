"""Fetch the slices of some segments that are eligible for a request."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Literal

from sqlalchemy import ColumnElement, Connection

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.slices import fetch_given
from queue_core.catalog.tables import slices
from queue_core.selection.request import FireRequest
from queue_core.values.model import Slice


def fetch_of_segments(
    connection: Connection,
    request: FireRequest,
    segments: Collection[int],
    lock: Literal["skip"] | None = None,
) -> list[Slice]:
    """Return eligible slices in order of queue, magazine, shard and position; *lock* as `fetch`."""
    database = dialect.of(connection)
    where, given = eligible(connection, request, by_segment=True)
    given["of_segments"] = database.listed(segments)
    return fetch_given(connection, (_of_segments(database), *where), given, lock)


# Built once, as the other conditions are.
@lru_cache(maxsize=2)
def _of_segments(database: dialect.Dialect) -> ColumnElement[bool]:
    return database.one_of_given(slices.c.segment_id, "of_segments")
