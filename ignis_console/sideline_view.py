"""The view `sideline` of a queue, with the moment at which it was read."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from queue_core.catalog import dialect
from queue_core.store import Store
from queue_core.watching import views


class SidelineView(NamedTuple):
    """The view at one moment."""

    #: The catalog's time, in microseconds since 1970.
    now: int
    rows: pa.Table


def read(store: Store, queue: str) -> SidelineView:
    """Read the view of a queue; raises `NoSuchQueue`."""
    with store.catalog.read() as connection:
        now = dialect.read_clock(connection)
        rows = views.read(connection, "sideline", queue, store.storage.uri)
        return SidelineView(now, rows)
