"""The command `ignis samples`: how the figures of queues went."""

from __future__ import annotations

from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any

import pyarrow as pa
import typer

from ignis_cli.app import AnyName, command
from ignis_cli.display import in_json, show
from ignis_cli.sparkline import sparkline
from queue_core import Store
from queue_core.watching.views import read_samples

#: Characters of a sparkline, one for each sample.
_WIDTH = 40
#: Columns with a sparkline.
_LINES = ("waiting", "oldest_age")


class Each(StrEnum):
    """The time that one sample stands for."""

    ten_seconds = "10s"
    minute = "1m"
    hour = "1h"

    @property
    def seconds(self) -> int:
        """The time in seconds."""
        return {Each.ten_seconds: 10, Each.minute: 60, Each.hour: 3600}[self]


@command("Inspect")
def samples(
    store: Store,
    queue: AnyName = None,
    each: Annotated[
        Each,
        typer.Option(
            help="The time between two samples: 10s for the last hour, 1m for the last day, or 1h "
            "for the last 30 days."
        ),
    ] = Each.ten_seconds,
) -> None:
    """
    Show how the figures of queues went: their latest sample, and lines of the ones before.

    The side task `sample` writes them while a query, a pool, a manager or `Store.side_tasks` runs
    side tasks. With --json, all samples are printed.
    """
    rows = read_samples(store.catalog, queue, each.seconds)
    show(rows if in_json.get() else _latest(rows))


def _latest(rows: pa.Table) -> pa.Table:
    """Return the latest sample of each queue, with a line for each of some columns."""
    latest: list[dict[str, Any]] = []
    for _, found in groupby(rows.to_pylist(), key=lambda row: row["queue"]):
        history = list(found)
        lines = {
            f"{name} before": sparkline([row[name] for row in history], _WIDTH) for name in _LINES
        }
        rounded = {
            name: round(value, 1) if isinstance(value, float) else value
            for name, value in history[-1].items()
        }
        latest.append(rounded | lines)
    names = [*rows.column_names, *(f"{name} before" for name in _LINES)]
    del names[names.index("seconds")]
    columns = {name: [row[name] for row in latest] for name in names}
    schema = pa.schema([rows.schema.field(name) for name in names if name in rows.column_names])
    for name in _LINES:
        schema = schema.append(pa.field(f"{name} before", pa.string()))
    return pa.table(columns, schema=schema)
