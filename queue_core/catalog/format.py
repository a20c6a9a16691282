"""The format version of a catalog, and the ordered steps from one version to the next.

A step never changes. It uses no `Table`, because those have the newest format. It renames or
removes all that changes its meaning, so that an older ignis that still has the catalog open gets an
error and never misreads a row.

Beside the tables, the database gets views for tools that read SQL: present figures, and samples.
They hold nothing. ignis itself does not read them: its own views run the same statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Float, Select, cast, insert, inspect, select, update

from queue_core.catalog import dialect
from queue_core.catalog.databases.error_codes import LACKING
from queue_core.catalog.holders import named_locks
from queue_core.catalog.record_tables import samples as sample_rows
from queue_core.catalog.records import samples
from queue_core.catalog.records.figures import PRESENT
from queue_core.catalog.tables import facts, locks, metadata
from queue_core.errors import DamagedCatalog, FormatTooNew, NoSuchStore
from queue_core.support import faults

if TYPE_CHECKING:
    from queue_core.catalog.identity.identity import NewStore

#: The format that this version of ignis writes.
FORMAT = 3

#: The first format that a release writes.
OLDEST = 3

#: ``STEPS[n]`` turns a catalog of format n into one of format n + 1.
STEPS: dict[int, Callable[[Connection], None]] = {}

#: The names of the views.
FIGURES, SAMPLES = "queue_figures", "queue_samples"


def is_current(connection: Connection, catalog: str) -> bool:
    """
    Return whether a catalog has all tables of this format.

    Raises `FormatTooNew`, and `DamagedCatalog` when some are missing.
    """
    there = _tables(connection)
    if facts.name not in there or read(connection, catalog) != FORMAT:
        return False
    _check_tables(there, catalog)
    return True


def prepare(
    connection: Connection, catalog: str, *, create: bool, new: NewStore | None = None
) -> str | None:
    """
    Create the tables or bring them up to this format, inside a writing transaction.

    *new* checks a new store, and writes into its catalog.
    Return ``open`` if it created them, ``migrate`` if it changed them, and else None. Raises
    `NoSuchStore`, `DamagedCatalog` or `FormatTooNew`.
    """
    there = _tables(connection)
    if facts.name not in there:
        # A server's database may hold tables of other programs.
        in_file = dialect.of(connection).file_of(connection.engine) is not None
        strange = there if in_file else there & metadata.tables.keys()
        if strange:
            raise DamagedCatalog(
                f"catalog {catalog} holds the tables {', '.join(sorted(strange))} and is not an "
                "ignis store; give ignis a database of its own, or restore it from a backup"
            )
        if not create:
            raise NoSuchStore(f"there is no ignis store at {catalog}; create a queue first")
        if dialect.of(connection).create_alone(connection, facts):
            dialect.of(connection).create_tables(connection, metadata, but=facts)
            create_views(connection)
            connection.execute(insert(facts).values(name="format", value=str(FORMAT)))
            connection.execute(
                insert(locks).values(name=named_locks.REPORTING, queue_id=named_locks.STORE)
            )
            if new is not None:
                new.write(connection)
            faults.point("open.before_commit")
            return "open"
    # Other processes that migrate wait for this row.
    connection.execute(select(facts).with_for_update()).all()
    found = read(connection, catalog)
    if found == FORMAT:
        # Another process was faster.
        return None
    # They show tables that a step changes, and hold nothing themselves.
    drop_views(connection)
    for version in range(found, FORMAT):
        STEPS[version](connection)
    create_views(connection)
    _check_tables(_tables(connection), catalog)
    connection.execute(update(facts).where(facts.c.name == "format").values(value=str(FORMAT)))
    faults.point("migrate.before_commit")
    return "migrate"


def read(connection: Connection, catalog: str) -> int:
    """Return the format of a catalog; raises `FormatTooNew` or `DamagedCatalog`."""
    value = connection.scalar(select(facts.c.value).where(facts.c.name == "format"))
    if value is None or not value.isdecimal():
        raise DamagedCatalog(f"catalog {catalog} has no format version; restore it from a backup")
    if int(value) > FORMAT:
        raise FormatTooNew(
            f"catalog {catalog} has format {value}, and this ignis reads formats up to {FORMAT}; "
            "upgrade ignis"
        )
    if int(value) < OLDEST:
        raise DamagedCatalog(
            f"catalog {catalog} has format {value}, which no release has written, and this ignis "
            f"reads formats from {OLDEST} on; read its messages with the ignis that wrote it, and "
            "load them into a new store"
        )
    return int(value)


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def _check_tables(there: set[str], catalog: str) -> None:
    missing = metadata.tables.keys() - there
    if missing:
        raise DamagedCatalog(
            f"catalog {catalog} lacks its tables {', '.join(sorted(missing))}; {LACKING}"
        )


def create_views(connection: Connection) -> None:
    """Create the views."""
    dialect.of(connection).create(connection, "views", lambda: _compiled(connection))


def drop_views(connection: Connection) -> None:
    """Remove the views, if they are there."""
    for name in (FIGURES, SAMPLES):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _compiled(connection: Connection) -> tuple[str, ...]:
    present = PRESENT.subquery("present")
    plain = ("queue", "waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
    ages = [
        (cast(present.c[name], Float(53)) / 1e6).label(name)
        for name in ("oldest_age", "longest_wait")
    ]
    times = dialect.of(connection).as_time(sample_rows.c.taken_at)
    return (
        _creation(connection, FIGURES, select(*(present.c[name] for name in plain), *ages)),
        _creation(connection, SAMPLES, samples.history(times)),
    )


def _creation(connection: Connection, name: str, query: Select[Any]) -> str:
    # A view takes no parameters.
    compiled = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
    return f"CREATE VIEW {name} AS {compiled}".replace("%%", "%")
