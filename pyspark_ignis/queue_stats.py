"""Count the messages of each queue of a store: published, consumed, sidelined, and so on."""

from __future__ import annotations

from dataclasses import dataclass

from queue_core.store import Store

_COUNTED = ("loaded", "deleted", "sidelined", "swept", "returned", "waiting", "in_flight")


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
    sums = shards.group_by(["queue", "magazine"]).aggregate([(each, "sum") for each in _COUNTED])
    rows = sums.rename_columns(["queue", "magazine", *_COUNTED]).to_pylist()
    found = {(row["queue"], row["magazine"]): row for row in rows}
    stats = {}
    for queue in sorted({queue for queue, _ in found}):
        main, sideline = found[queue, "main"], found[queue, "sideline"]
        stats[queue] = QueueStats(
            # Messages that come back from the sideline are loaded into main once more.
            published=main["loaded"] - sideline["returned"],
            consumed=main["deleted"] + sideline["deleted"],
            sidelined=main["sidelined"] + main["swept"],
            shovelled=sideline["returned"],
            unconsumed=main["waiting"] + main["in_flight"],
        )
    return stats
