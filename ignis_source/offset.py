"""The offsets that Spark checkpoints: the last ticket, round of side tasks, or messages of logs.

Spark compares offsets as JSON text. So the keys always have the same order, and an offset changes
only if there is data to read.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from queue_core.errors import BadName, BadOption, Damaged
from queue_core.values.names import check_consumer, listed


class Offset(NamedTuple):
    """The tickets of a consumer up to *ticket*, inclusive; 0 is before the first."""

    consumer: str
    ticket: int

    def to_json(self) -> dict[str, Any]:
        """Return the value that Spark logs."""
        return {"consumer": self.consumer, "ticket": self.ticket}

    @staticmethod
    def from_json(logged: dict[str, Any]) -> Offset:
        """Read what `to_json` wrote, by this version or an older one; raises `Damaged`."""
        try:
            return Offset(check_consumer(logged["consumer"]), int(logged["ticket"]))
        except (BadName, KeyError, TypeError, ValueError) as error:
            raise _foreign(logged, "reads messages") from error


class TaskOffset(NamedTuple):
    """The rounds of a stream of side tasks up to *round*, and others' reports up to *report*."""

    #: The stream's name, and the newest report when it first began. Each offset has them, because
    #: Spark does not log the start of the first batch.
    stream: str
    since: int
    round: int
    report: int

    def to_json(self) -> dict[str, Any]:
        """Return the value that Spark logs."""
        return self._asdict()

    @staticmethod
    def from_json(logged: dict[str, Any]) -> TaskOffset:
        """Read what `to_json` wrote, by this version or an older one; raises `Damaged`."""
        try:
            numbers = (int(logged[name]) for name in TaskOffset._fields[1:])
            return TaskOffset(check_consumer(logged["stream"]), *numbers)
        except (BadName, KeyError, TypeError, ValueError) as error:
            raise _foreign(logged, "runs side tasks") from error

    @staticmethod
    def new_stream(store: str) -> str:
        """Return a name for a new stream of side tasks of a store."""
        return f"tasks:{store}:{uuid.uuid4().hex}"

    def check_store(self, store: str) -> None:
        """Raise `BadOption` if the stream runs the side tasks of another store."""
        of = self.stream.partition(":")[2].partition(":")[0]
        if of != store:
            raise BadOption(
                "ignis source: the query's checkpoint belongs to the side tasks of another store, "
                f"{of}, and path, catalog and storage name store {store}: use the other store, "
                "or start with a new checkpoint"
            )


class LogRange(NamedTuple):
    """What a batch has of a shard's log: from *begin* to before *end*."""

    begin: int
    end: int
    #: The id of the message before *end*, and when it was logged in microseconds; 0: not known.
    last: int = 0
    at: int = 0
    #: When the catalog had been restored then, in microseconds; 0: never.
    restored: int = 0


class LogOffset(NamedTuple):
    """
    A batch of messages of logs, by the names of queues and by shards.

    It also has the beginning of the batch: Spark does not log where the first batch begins, and a
    later one begins after the end of the last one if messages were trimmed.
    """

    ranges: Mapping[tuple[str, int], LogRange]

    def to_json(self) -> dict[str, Any]:
        """Return the value that Spark logs."""
        shown: dict[str, Any] = {}
        for (queue, shard), each in sorted(self.ranges.items()):
            shown.setdefault(queue, {})[str(shard)] = each._asdict()
        return shown

    @staticmethod
    def from_json(logged: dict[str, Any]) -> LogOffset:
        """Read what `to_json` wrote; raises `Damaged`."""
        try:
            return LogOffset(
                {
                    (queue, int(shard)): LogRange(*(int(said[name]) for name in LogRange._fields))
                    for queue, shards in logged.items()
                    for shard, said in shards.items()
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _foreign(logged, "reads logs") from error

    def check_queues(self, names: Collection[str]) -> None:
        """Raise `BadOption` unless these are its queues."""
        own = {queue for queue, _ in self.ranges}
        if own != {*names}:
            raise BadOption(
                f"ignis source: the query's checkpoint belongs to the logs of "
                f"{listed(sorted(own), quoted=True)}, and the query names "
                f"{listed(sorted(names), quoted=True)}: name the same queues, or start with a new "
                "checkpoint"
            )


def _foreign(logged: object, does: str) -> Damaged:
    return Damaged(
        f"the checkpoint holds {logged!r}, which is not an offset of an ignis source that {does}; "
        "was it written by a query of another kind?"
    )
