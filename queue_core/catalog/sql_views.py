"""Views in the catalog's database, for tools that read SQL: present figures, and samples.

They hold nothing. ignis itself does not read them: its own views run the same statements.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Float, Select, cast, select

from queue_core.catalog import dialect
from queue_core.catalog.records import samples
from queue_core.catalog.records.figures import PRESENT
from queue_core.catalog.tables import samples as sample_rows

#: Their names.
FIGURES, SAMPLES = "queue_figures", "queue_samples"


def create(connection: Connection) -> None:
    """Create the views."""
    dialect.of(connection).create(connection, "views", lambda: _compiled(connection))


def drop(connection: Connection) -> None:
    """Remove the views, if they are there."""
    for name in (FIGURES, SAMPLES):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _compiled(connection: Connection) -> tuple[str, ...]:
    present = PRESENT.subquery("present")
    plain = ("queue", "waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
    age = (cast(present.c.oldest_age, Float(53)) / 1e6).label("oldest_age")
    times = dialect.of(connection).as_time(sample_rows.c.taken_at)
    return (
        _creation(connection, FIGURES, select(*(present.c[name] for name in plain), age)),
        _creation(connection, SAMPLES, samples.history(times)),
    )


def _creation(connection: Connection, name: str, query: Select[Any]) -> str:
    # A view takes no parameters.
    compiled = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
    return f"CREATE VIEW {name} AS {compiled}".replace("%%", "%")
