"""The command that shows the figures of queues over time, as numbers and lines of bars."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ignis_cli.app import AnyName, command, duration
from ignis_cli.display import in_json
from ignis_cli.tables import show
from queue_core.watching.views import read_samples

if TYPE_CHECKING:
    from queue_core import Store

#: The time that one sample stands for.
Each = StrEnum("Each", {"ten_seconds": "10s", "minute": "1m", "hour": "1h"})


@command("Inspect")
def samples(store: Store, queue: AnyName = None, *, each: Each = Each.ten_seconds) -> None:
    """
    Show the figures of queues over time: their latest sample, and lines of earlier ones.

    The side task `sample` writes them while a query, a pool, a manager or `Store.side_tasks` runs
    side tasks. With --json, all samples are printed.

    Args:
        each: The time between two samples: 10s for the last hour, 1m for the last day, or 1h for
            the last 30 days.
    """
    rows = read_samples(store.catalog, queue, int(duration("each", each)))
    show(rows if in_json.get() else with_lines(rows))


#: Characters of a line of bars, one for each sample, and the columns that have one.
_WIDTH = 40
_LINES = ("waiting", "oldest_age")
_BARS = "▁▂▃▄▅▆▇█"


def with_lines(rows: pa.Table) -> pa.Table:
    """Return the latest sample of each queue, with a line for each of some columns."""
    latest: list[dict[str, Any]] = []
    for _, found in groupby(rows.to_pylist(), key=lambda row: row["queue"]):
        history = list(found)
        row = {k: round(v, 1) if isinstance(v, float) else v for k, v in history[-1].items()}
        for name in _LINES:
            row[f"{name} before"] = bars([each[name] for each in history], _WIDTH)
        latest.append(row)
    schema = rows.schema.remove(rows.schema.get_field_index("seconds"))
    for name in _LINES:
        schema = schema.append(pa.field(f"{name} before", pa.string()))
    return pa.Table.from_pylist(latest, schema)


def bars(values: Sequence[float | None], width: int) -> str:
    """
    Return the newest *width* of some numbers as bars, from 0 to the highest of them.

    A number that is not known is a space, so that it does not look like 0.
    """
    shown = values[-width:] if width else []
    highest = max((value for value in shown if value is not None), default=0)

    def bar(value: float) -> str:
        if highest <= 0 or value <= 0:
            return _BARS[0]
        # Whatever is more than nothing is seen to be more than nothing.
        return _BARS[max(1, min(int(value / highest * len(_BARS)), len(_BARS) - 1))]

    return "".join(" " if value is None else bar(value) for value in shown)
