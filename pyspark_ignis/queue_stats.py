"""Count the messages of each queue of a store: published, consumed, sidelined, and so on."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.store import Store

_MAIN = ("loaded", "deleted", "sidelined", "swept", "waiting", "in_flight")
_SIDELINE = ("deleted", "shovelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The messages of a queue, counted since its creation. Source: IgnisMQ."""

    #: Messages loaded by producers.
    published: int
    #: Messages that were finished, and therefore deleted.
    consumed: int
    #: Moves to the sideline, of messages that failed or got stuck. Two failures count twice.
    sidelined: int
    #: Moves back to main.
    shovelled: int
    #: Messages in main now, waiting or in flight.
    unconsumed: int


def queue_stats(store: Store) -> dict[str, QueueStats]:
    """Return the counts of each queue, by its name."""
    shards = store.view("shards")
    main, sideline = (
        _sums(shards.filter(pc.equal(shards["magazine"], magazine)), columns)
        for magazine, columns in (("main", _MAIN), ("sideline", _SIDELINE))
    )
    return {queue: _stats(main[queue], sideline[queue]) for queue in sorted(main)}


def _sums(shards: pa.Table, columns: tuple[str, ...]) -> dict[str, dict[str, int]]:
    sums = shards.group_by("queue").aggregate([(column, "sum") for column in columns])
    return {
        row["queue"]: {column: row[f"{column}_sum"] for column in columns}
        for row in sums.to_pylist()
    }


def _stats(main: dict[str, int], sideline: dict[str, int]) -> QueueStats:
    return QueueStats(
        # Messages that come back from the sideline are loaded into main once more.
        published=main["loaded"] - sideline["shovelled"],
        consumed=main["deleted"] + sideline["deleted"],
        sidelined=main["sidelined"] + main["swept"],
        shovelled=sideline["shovelled"],
        unconsumed=main["waiting"] + main["in_flight"],
    )
