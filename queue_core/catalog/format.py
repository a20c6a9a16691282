"""The format version of a catalog, and the ordered steps from one version to the next."""

from collections.abc import Callable

from sqlalchemy import Connection, insert, inspect, select, update

from queue_core import faults
from queue_core.catalog import dialect
from queue_core.catalog.tables import facts, metadata
from queue_core.errors import DamagedCatalog, FormatTooNew, NoSuchStore

#: What this version of ignis writes.
FORMAT = 1

#: The first format there was.
OLDEST = 1

#: ``STEPS[n]`` turns a catalog of format n into one of format n + 1.
STEPS: dict[int, Callable[[Connection], None]] = {}


def is_current(connection: Connection, catalog: str) -> bool:
    """
    Whether a catalog has all tables of this format.

    Raises `FormatTooNew`, and `DamagedCatalog` when some are missing.
    """
    there = set(inspect(connection).get_table_names())
    if facts.name not in there or read(connection, catalog) != FORMAT:
        return False
    missing = metadata.tables.keys() - there
    if missing:
        raise DamagedCatalog(
            f"catalog {catalog} lacks its tables {', '.join(sorted(missing))}; "
            "restore it from a backup"
        )
    return True


def prepare(connection: Connection, catalog: str, *, create: bool) -> None:
    """
    Create the tables or bring them up to this format, inside a writing transaction.

    Raises `NoSuchStore`, `DamagedCatalog` or `FormatTooNew`.
    """
    dialect.alone(connection)
    there = set(inspect(connection).get_table_names())
    if facts.name not in there:
        strange = there if dialect.is_sqlite(connection.engine) else there & metadata.tables.keys()
        if strange:
            raise DamagedCatalog(
                f"catalog {catalog} holds the tables {', '.join(sorted(strange))} and is no ignis "
                "store; give ignis a database of its own, or restore it from a backup"
            )
        if not create:
            raise NoSuchStore(f"there is no ignis store at {catalog}; load something first")
        metadata.create_all(connection)
        connection.execute(insert(facts).values(name="format", value=str(FORMAT)))
        faults.point("open.before_commit")
        return
    for version in range(read(connection, catalog), FORMAT):
        STEPS[version](connection)
        connection.execute(
            update(facts).where(facts.c.name == "format").values(value=str(version + 1))
        )


def read(connection: Connection, catalog: str) -> int:
    """The format of an existing catalog; raises `FormatTooNew` or `DamagedCatalog`."""
    value = connection.scalar(select(facts.c.value).where(facts.c.name == "format"))
    if value is None or not value.isdecimal() or int(value) < OLDEST:
        raise DamagedCatalog(f"catalog {catalog} has no format version; restore it from a backup")
    if int(value) > FORMAT:
        raise FormatTooNew(
            f"catalog {catalog} has format {value}, and this ignis reads up to {FORMAT}; "
            "upgrade ignis"
        )
    return int(value)
