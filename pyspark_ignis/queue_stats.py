"""How many messages each queue of a store has seen, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.store import Store

_MAIN = ("loaded", "deleted", "sidelined", "swept", "waiting", "in_flight")
_SIDELINE = ("deleted", "shovelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """What a queue has seen since its beginning, in messages. Source: IgnisMQ."""

    #: Loaded by producers.
    published: int
    #: Done with, and deleted.
    consumed: int
    #: Set aside because they failed or got stuck; one that failed twice counts twice.
    sidelined: int
    #: Brought back to main.
    shovelled: int
    #: In main now: waiting, or in flight.
    unconsumed: int


def queue_stats(store: Store) -> dict[str, QueueStats]:
    """The tally of each queue, by its name."""
    shards = store.view("shards")
    main, sideline = (
        _sums(shards.filter(pc.equal(shards["magazine"], magazine)), columns)
        for magazine, columns in (("main", _MAIN), ("sideline", _SIDELINE))
    )
    return {queue: _tally(main[queue], sideline[queue]) for queue in sorted(main)}


def _sums(shards: pa.Table, columns: tuple[str, ...]) -> dict[str, dict[str, int]]:
    sums = shards.group_by("queue").aggregate([(column, "sum") for column in columns])
    return {
        row["queue"]: {column: row[f"{column}_sum"] for column in columns}
        for row in sums.to_pylist()
    }


def _tally(main: dict[str, int], sideline: dict[str, int]) -> QueueStats:
    return QueueStats(
        # What comes back from the sideline is loaded into main once more.
        published=main["loaded"] - sideline["shovelled"],
        consumed=main["deleted"] + sideline["deleted"],
        sidelined=main["sidelined"] + main["swept"],
        shovelled=sideline["shovelled"],
        unconsumed=main["waiting"] + main["in_flight"],
    )
