"""
The files of segments, as the catalog knows them.

A file is live, garbage (no slice names it), condemned (vacuum removes it), or found: it lies beside
a restored catalog, which does not know it. Such files hold messages that were loaded, or rewritten,
after the backup, and vacuum leaves them alone until a person gives them up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import files

#: The state of a file that a restored catalog does not know; only an operator gives it up.
FOUND = "found"
_FOUND = files.c.state == FOUND


def all_files(connection: Connection) -> Sequence[Row[Any]]:
    """Return the `location` of each file, its `state`, and `since` when it has that state."""
    return connection.execute(select(files)).all()


def count_unnamed(connection: Connection) -> int:
    """Return how many files no slice names, whether or not they are condemned."""
    unnamed = files.c.state.in_(("garbage", "condemned"))
    return int(connection.scalar(select(func.count()).where(unnamed)) or 0)


def find(connection: Connection) -> list[str]:
    """Return the locations of the files that were found beside the catalog."""
    return sorted(connection.scalars(select(files.c.location).where(_FOUND)))


def note_found(connection: Connection, locations: Collection[str]) -> None:
    """Record files that lie beside a restored catalog."""
    if locations:
        new = {"state": FOUND, "since": dialect.read_clock(connection)}
        connection.execute(insert(files), [{"location": at} | new for at in locations])


def give_up(connection: Connection) -> list[str]:
    """Let vacuum remove the files that were found, after its grace period; return them."""
    found = find(connection)
    garbage = {"state": "garbage", "since": dialect.now()}
    connection.execute(update(files).where(_FOUND).values(**garbage))
    return found


@lru_cache(maxsize=4)
def noting(database: dialect.Dialect, state: str) -> Any:
    """Return the statement that notes files with a state, unless they are known."""
    return (
        database.insert_new(files).values(state=state, since=dialect.now()).on_conflict_do_nothing()
    )


def condemn(connection: Connection, strangers: Sequence[str], garbage: Sequence[str]) -> None:
    """Condemn files that the catalog does not know, in order, and those that are still garbage."""
    now = dialect.now()
    if strangers:
        # In the order in which publications claim files, so that the two cannot deadlock.
        statement = noting(dialect.of(connection), "condemned")
        connection.execute(statement, [{"location": location} for location in strangers])
    these = dialect.one_of(files.c.location, garbage)
    # These are locked in the same order, before they are changed in any order.
    ordered = select(files.c.location).where(these).order_by(files.c.location)
    connection.execute(ordered.with_for_update()).all()
    connection.execute(
        update(files).where(these, files.c.state == "garbage").values(state="condemned", since=now)
    )


def condemned(connection: Connection) -> list[str]:
    """Return the locations of condemned files."""
    query = select(files.c.location).where(files.c.state == "condemned")
    return sorted(connection.scalars(query))


def forget(connection: Connection, locations: Collection[str]) -> None:
    """Forget those of some files that are condemned."""
    these = dialect.one_of(files.c.location, locations)
    connection.execute(delete(files).where(these, files.c.state == "condemned"))
