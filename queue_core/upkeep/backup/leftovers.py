"""Segments that lie beside a restored catalog, which does not know them.

They hold messages that were loaded, or rewritten, after the backup. Vacuum leaves them alone until
a person gives them up.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from queue_core.catalog import dialect
from queue_core.catalog.slices.segments import FOUND
from queue_core.catalog.tables import files

_LEFT = files.c.state == FOUND


def find(connection: Connection) -> list[str]:
    """Return the locations of the files."""
    return sorted(connection.scalars(select(files.c.location).where(_LEFT)))


def give_up(connection: Connection) -> list[str]:
    """Let vacuum remove the files after its grace period; return their locations."""
    found = find(connection)
    garbage = {"state": "garbage", "since": dialect.now()}
    connection.execute(update(files).where(_LEFT).values(**garbage))
    return found
