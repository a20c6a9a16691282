"""The partition that an executor gets: the messages to read, as plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from queue_core.values.model import ReadPlan, ScanTask
from queue_core.values.plan import partitions as spread


@dataclass
class IgnisPartition(InputPartition):
    """Messages of some shards, each shard in order."""

    plan: ReadPlan
    #: A condition on the messages to read.
    selector: str | None = None


def split(plan: ReadPlan, count: int, selector: str | None = None) -> Sequence[IgnisPartition]:
    """Spread a plan over at most *count* partitions; the rows of a shard stay together."""
    shards: dict[tuple[str, int], list[ScanTask]] = defaultdict(list)
    for piece in plan.tasks:
        shards[piece.queue, piece.shard].append(piece)
    sizes = {shard: sum(piece.bytes for piece in pieces) for shard, pieces in shards.items()}
    return [
        IgnisPartition(
            replace(plan, tasks=tuple(piece for shard in shards_ for piece in shards[shard])),
            selector,
        )
        for shards_ in spread(sizes, count)
    ]
