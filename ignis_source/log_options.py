"""The options of a read of logs: those of Kafka's source, under their names there."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from queue_core.errors import BadOption
from queue_core.values.options import Option, boolean, one_of, whole

QUEUE, LOG = "queue", "log"
#: The first offset that a log has, and that of its next message.
EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}

#: One offset for all shards, or one for each queue and shard.
Said: TypeAlias = int | Mapping[tuple[str, int], int]


def _offsets(text: str) -> Said:
    """Parse a word of `_WORDS`, or offsets as JSON."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        said = {
            (queue, int(shard)): offset
            for queue, shards in json.loads(text).items()
            for shard, offset in shards.items()
        }
        if all(type(offset) is int and offset >= EARLIEST for offset in said.values()):
            return said
    except (AttributeError, ValueError):
        pass
    raise ValueError('earliest, latest, or an offset for each shard: {"orders": {"0": 23}}')


LOG_OPTIONS: tuple[Option, ...] = (
    Option(
        "read",
        "`log`: reads the logs of the queues, as Kafka's source reads topics, with the options "
        "that follow. It takes no messages, and Spark's checkpoint has the offsets.",
        one_of(QUEUE, LOG),
        QUEUE,
    ),
    Option(
        "startingOffsets",
        "With `read=log`, where a new query begins: `earliest`, `latest`, or JSON with an offset "
        'for each shard, such as `{"orders": {"0": 23, "1": -2}}`; -2 is the earliest one, -1 the '
        "latest. By default, `latest` in a stream and `earliest` in a batch. Source: Kafka's "
        "source, as are all options of `read=log`.",
        _offsets,
    ),
    Option(
        "startingTimestamp",
        "With `read=log`, a new query begins at each shard's first message of this time or later, "
        "in milliseconds since 1970; at the latest one, if there is none.",
        whole(0),
    ),
    Option(
        "endingOffsets",
        "With `read=log`, the offsets before which a batch ends. By default, `latest`.",
        _offsets,
    ),
    Option(
        "endingTimestamp",
        "With `read=log`, a batch ends before each shard's first message of this time or later.",
        whole(0),
    ),
    Option(
        "maxOffsetsPerTrigger",
        "With `read=log`, the most messages in one micro-batch. Each shard gives its share of what "
        "it has. By default, no limit.",
        whole(1),
    ),
    Option(
        "minPartitions",
        "With `read=log`, the least partitions of a batch; large shards are divided. By default, "
        "as many as the `concurrency` of each queue, and at most one for each shard.",
        whole(1),
    ),
    Option(
        "failOnDataLoss",
        "With `read=log`, whether the query fails if messages were trimmed before they were part "
        "of a batch. If `false`, it goes on with the first one that is left. If they were trimmed "
        "later, it always fails. If `true`, it also fails once the catalog was restored.",
        boolean,
        True,
    ),
)
#: Those that mean the same with ``read=log``.
_SHARED = {
    *("path", "catalog", "storage", "queue", "queues", "selector", "includeMetadata", "idleWait"),
    *(option.name for option in LOG_OPTIONS),
}


class LogOptions(NamedTuple):
    """Which part of logs to read; None: what is usual."""

    starting: Said | None
    since: int | None
    ending: Said | None
    until: int | None
    most: int | None
    partitions: int | None
    fails_on_loss: bool

    @staticmethod
    def of(values: Mapping[str, Any], options: Iterable[Option]) -> LogOptions | None:
        """Return them, or None without ``read=log``; raises `BadOption` for what does not fit."""
        given = [each.name for each in options if values[each.name] != each.default]
        own = [option.name for option in LOG_OPTIONS]
        if values["read"] != LOG:
            if wrong := ", ".join(name for name in given if name in own):
                raise BadOption(f'ignis source: {wrong}: set .option("read", "log") too')
            return None
        if wrong := ", ".join(name for name in given if name not in _SHARED):
            raise BadOption(
                f"ignis source: read=log takes no messages, and only reads: remove {wrong}"
            )
        for end in ("starting", "ending"):
            if None not in (values[f"{end}Offsets"], values[f"{end}Timestamp"]):
                raise BadOption(f"ignis source: set {end}Offsets or {end}Timestamp, not both")
        return LogOptions(*(values[name] for name in own[1:]))

    def check(self, *, streams: bool) -> None:
        """Raise `BadOption` for what only a batch has, or only a stream."""
        if streams and (self.ending, self.until) != (None, None):
            raise BadOption("endingOffsets and endingTimestamp are for spark.read")
        if not streams and self.most is not None:
            raise BadOption("maxOffsetsPerTrigger is for spark.readStream")
        if not streams and LATEST in _numbers(self.starting):
            raise BadOption("startingOffsets: a batch cannot begin at latest (-1)")
        if not streams and EARLIEST in _numbers(self.ending):
            raise BadOption("endingOffsets: a batch cannot end at earliest (-2)")


def _numbers(said: Said | None) -> Collection[int | None]:
    return said.values() if isinstance(said, Mapping) else [said]
