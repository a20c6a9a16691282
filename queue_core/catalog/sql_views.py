"""Views in the catalog's database, for tools that read SQL: present figures, and samples.

They hold nothing. ignis itself does not read them: its own views run the same statements.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Float, Select, cast, select

from queue_core.catalog import dialect, samples
from queue_core.catalog.figures import PRESENT
from queue_core.catalog.tables import samples as sample_rows

#: Their names.
FIGURES, SAMPLES = "queue_figures", "queue_samples"


def create(connection: Connection) -> None:
    """Create the views."""
    present = PRESENT.subquery("present")
    plain = ("queue", "waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
    age = (cast(present.c.oldest_age, Float(53)) / 1e6).label("oldest_age")
    _create(connection, FIGURES, select(*(present.c[name] for name in plain), age))
    times = dialect.of(connection).as_time(sample_rows.c.taken_at)
    _create(connection, SAMPLES, samples.history(times))


def drop(connection: Connection) -> None:
    """Remove the views, if they are there."""
    for name in (FIGURES, SAMPLES):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _create(connection: Connection, name: str, query: Select[Any]) -> None:
    # A view takes no parameters.
    compiled = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
    connection.exec_driver_sql(f"CREATE VIEW {name} AS {compiled}".replace("%%", "%"))
