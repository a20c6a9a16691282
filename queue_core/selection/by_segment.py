"""Fetch the slices of some segments that are eligible for a request."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from sqlalchemy import Connection

from queue_core.catalog.slices.conditions import eligible_of_segments
from queue_core.catalog.slices.slices import fetch_given
from queue_core.selection.request import FireRequest
from queue_core.values.model import Slice


def fetch_of_segments(
    connection: Connection,
    request: FireRequest,
    segments: Collection[int],
    lock: Literal["skip"] | None = None,
) -> list[Slice]:
    """Return eligible slices in order of queue, magazine, shard and position; *lock* as `fetch`."""
    where, given = eligible_of_segments(connection, request, segments)
    return fetch_given(connection, where, given, lock)
