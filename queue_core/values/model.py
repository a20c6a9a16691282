"""The nouns of ignis as frozen values. Ranges are half-open; times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple

import pyarrow as pa

from queue_core.errors import BadOption
from queue_core.values.names import nearest
from queue_core.values.ranks import Ranking
from queue_core.values.rows import Numbers, Rows
from queue_core.values.settings import QueueSettings

#: A message id is the number of its segment, followed by the number of its row in this many bits.
ROW_BITS = 20
#: The most rows of one segment.
MAX_SEGMENT_ROWS = 1 << ROW_BITS
#: The name of a segment without a file is this prefix and its id.
INLINE = "inlined/"


class Magazine(IntEnum):
    """The two magazines of a queue."""

    MAIN = 0
    SIDELINE = 1


_MAGAZINES = {magazine.name.lower(): magazine for magazine in Magazine}


def magazine_of(name: str) -> Magazine:
    """Return the magazine ``main`` or ``sideline``; raises `BadOption`."""
    if name not in _MAGAZINES:
        raise BadOption(f"magazine={name!r}{nearest(str(name), _MAGAZINES)}; use main or sideline")
    return _MAGAZINES[name]


#: The orders of a firing without an order by columns: of each shard alone, or across all shards.
BY_SHARD, GLOBAL = "shard", "global"


class State(IntEnum):
    """The states of a slice."""

    #: Waiting to be fired.
    LOADED = 0
    #: In flight, held by a ticket.
    FIRED = 1
    #: Quarantined, because its segment cannot be read.
    DAMAGED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue as the catalog describes it."""

    id: int
    name: str
    shards: int
    #: The column whose hash picks the shard, or None.
    key: str | None
    schema: pa.Schema
    #: The number of the schema, which grows by one when columns are added.
    schema_version: int
    settings: QueueSettings
    created_at: int
    #: When it was deactivated; None while it is in use.
    deactivated_at: int | None = None
    #: When a person paused it; None if no person did.
    paused_at: int | None = None
    #: Its settings as the catalog stored them when it was read, even if a caller replaces some.
    stored_settings: str | None = None
    #: Whether it was dropped since it was read.
    is_dropped: bool = False
    #: Of a subscription: the id of the queue whose log it reads; 0: it is no subscription.
    log_of: int = 0
    #: Since when it takes nothing more from the log; 0: it still does.
    detached_at: int = 0

    @property
    def root(self) -> int:
        """The id of the queue that its segments, schemas and message ids belong to."""
        return self.log_of or self.id

    @property
    def sources(self) -> tuple[int, ...]:
        """The ids of the queues whose loads bring it messages."""
        return (self.id, self.log_of) if self.log_of else (self.id,)

    @property
    def is_paused(self) -> bool:
        """Whether it gives no messages to firings: by a person, or by its `concurrency`."""
        return self.paused_at is not None or not self.settings.concurrency


class Extent(NamedTuple):
    """How much a replay, a snapshot, a seek or a clone brings, or would bring by its dry run."""

    #: How many messages the queue, or the snapshot, has then.
    messages: int
    bytes: int
    #: How many of a replay's messages have expired by the age that the setting of its queue allows.
    expired: int = 0
    #: How many messages a seek removes, or passes in the log.
    removed: int = 0


def check_roots(queues: Sequence[QueueInfo]) -> None:
    """
    Raise `BadOption` if two queues have messages of one root.

    These have the same ids, so an id would not say which of the messages is meant.
    """
    found: dict[int, str] = {}
    for queue in queues:
        other = found.setdefault(queue.root, queue.name)
        if other != queue.name:
            raise BadOption(
                f"queues {other!r} and {queue.name!r} have the same messages, from one log; read "
                "and settle them apart"
            )


def check_loads(queue: QueueInfo) -> None:
    """Raise `BadOption` for a queue into which nothing is loaded."""
    if queue.log_of:
        raise BadOption(
            f"queue {queue.name!r} is a subscription, whose messages come from the log of another "
            "queue; load into that one"
        )


class Chunk(NamedTuple):
    """One record batch of a segment: the unit that is read and checked."""

    #: How many row numbers it covers. In a compacted segment, its rows can have gaps.
    rows: int
    #: Where its bytes begin in the file or in the inlined data.
    offset: int
    length: int
    #: xxh3-64 of the bytes.
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A range of rows of a staged segment for one shard; *shard* is None until it is assigned."""

    shard: int | None
    start: int
    stop: int
    #: Statistics of the attribute columns, as JSON, or None.
    stats: str | None = None
    #: The rows of the range that are loaded; None: all.
    rows: Rows | None = None

    def __len__(self) -> int:
        return self.stop - self.start if self.rows is None else len(self.rows)

    def narrowed(self, rows: Rows) -> Run:
        """Return the run without the rows that are not in *rows*."""
        left = rows.between(self.start, self.stop) if self.rows is None else self.rows & rows
        return replace(self, start=left.start, stop=left.stop, rows=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A durable segment that no slice names yet."""

    #: Where the file is in the storage, or None when *data* holds the bytes.
    location: str | None
    data: bytes | None
    rows: int
    #: The memory that a reader of all rows needs: uncompressed, never less than the stored size.
    bytes: int
    chunks: tuple[Chunk, ...]
    runs: tuple[Run, ...]
    schema_version: int
    #: The order of its rows by turns, if it was staged for a fair queue.
    rankings: tuple[Ranking, ...] = ()

    @property
    def messages(self) -> int:
        """How many of its rows are loaded."""
        return sum(len(run) for run in self.runs)

    def narrowed(self, rows: Rows) -> Staged:
        """Return the segment with only *rows* to be loaded."""
        left = [run for run in (run.narrowed(rows) for run in self.runs) if len(run)]
        # Runs of categories interleave, so the first run can now be another one.
        return replace(self, runs=tuple(sorted(left, key=lambda run: run.start)))

    def in_shard(self, shard: int) -> Staged:
        """Return the segment with *shard* for the runs that have none yet."""
        decided = (replace(run, shard=shard) if run.shard is None else run for run in self.runs)
        return replace(self, runs=tuple(decided))


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """Rows that a handler has given, as segments that no slice names yet."""

    staged: tuple[Staged, ...]
    #: The message of each row, over all segments.
    ids: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Neighbouring rows of one segment in one shard: the unit in which messages move."""

    #: 0 of a slice that is not in the catalog yet: its rows are in a log, and its place is the
    #: offset of the first one.
    id: int
    queue_id: int
    magazine: Magazine
    shard: int
    #: Place of the row ``rows.start`` in its shard; the place of row r is position + r - start.
    position: int
    segment_id: int
    rows: Rows
    #: Size of the rows, in bytes; an estimate once a segment is split.
    bytes: int
    #: How often the messages have failed.
    attempts: int
    #: How often they have been fired.
    deliveries: int
    #: When the oldest of them was loaded, and when they entered this magazine.
    loaded_at: int
    moved_at: int
    fired_at: int | None = None
    consumer_id: int | None = None
    ticket: int | None = None
    stats: str | None = None
    #: When they are to return from the sideline to main; None: no time.
    due_at: int | None = None
    #: How often they were lost with their consumer since they were settled last.
    lost: int = 0
    #: How many messages that consumer held when it was lost; 0: they are no suspects.
    lost_among: int = 0
    #: Whether the messages are quarantined; those of a ticket can still be settled.
    damaged: bool = False
    #: In a fair queue: the rank of the row ``rows.start``, and the ticks per row.
    rank: int | None = None
    rank_step: int | None = None
    #: Whether they are in a log, and the queue has yet to copy the map of ids of their segment.
    unmapped: bool = False

    @property
    def shard_key(self) -> tuple[int, int, int]:
        """The ids of its queue and magazine, and the number of its shard."""
        return self.queue_id, int(self.magazine), self.shard

    @property
    def is_logged(self) -> bool:
        """Whether its messages are still in a log."""
        return not self.id

    @property
    def state(self) -> State:
        """Whether it waits, is in flight, or is quarantined."""
        if self.damaged:
            return State.DAMAGED
        return State.LOADED if self.ticket is None else State.FIRED

    @property
    def end(self) -> int:
        """One past the place of the last row."""
        return self.position + self.rows.stop - self.rows.start

    @property
    def came_at(self) -> int:
        """When the first of the messages came into main, as far as it is known."""
        # A compaction keeps the time when the last one came. What was never fired came by its load.
        has_returned = self.attempts or self.fired_at is not None
        return self.moved_at if has_returned else self.loaded_at

    def place_of(self, row: int) -> int:
        """Return the place of a row in its shard."""
        return self.position + row - self.rows.start

    def rank_of(self, row: int) -> int | None:
        """Return the rank of a row; None if the slice has none."""
        if self.rank is None:
            return None
        return self.rank + (self.rank_step or 0) * (row - self.rows.start)

    def narrowed(self, rows: Rows) -> Slice:
        """Return a slice of only some of its rows, at their places, with their ranks and bytes."""
        if rows is self.rows:
            return self
        place, rank = self.place_of(rows.start), self.rank_of(rows.start)
        return replace(self, rows=rows, position=place, rank=rank, bytes=self.bytes_of(rows))

    def bytes_of(self, rows: Rows) -> int:
        """Return the size of some of the rows, as a share of the slice's size."""
        return self.bytes * len(rows) // max(len(self.rows), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """A reference by which a machine without the catalog reads a segment."""

    segment_id: int
    #: Message id of row 0.
    first_id: int
    location: str | None
    data: bytes | None
    schema_version: int
    #: The chunks to read, each with the number of its first row.
    chunks: tuple[tuple[int, Chunk], ...]
    loaded_at: int
    #: Whether its rows carry the ids of their messages (`queue_core.values.schema.COMPACTED`).
    compacted: bool = False

    def narrowed(self, start: int, stop: int) -> SegmentRef:
        """Return the segment with only the chunks that hold rows of a half-open range."""
        wanted = tuple(at for at in self.chunks if at[0] < stop and start < at[0] + at[1].rows)
        return self if wanted == self.chunks else replace(self, chunks=wanted)

    @property
    def name(self) -> str:
        """Name of the segment in errors."""
        return self.location or f"{INLINE}{self.segment_id}"


class Part(NamedTuple):
    """Rows with the same attempts and time of firing."""

    rows: Rows
    attempts: int
    fired_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Rows of one segment, to be read in order; several parts can interleave."""

    queue: str
    shard: int
    segment: SegmentRef
    parts: tuple[Part, ...]
    bytes: int = 0

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A plan to read some messages in order, without the catalog: picklable, without handles."""

    #: URI of the storage; hidden in `repr`, because it can have credentials.
    storage: str = field(repr=False)
    #: The schema of the messages that are read, as Arrow IPC bytes.
    schema: bytes
    #: The schemas of older segments, by queue and version.
    schemas: dict[tuple[str, int], bytes] = field(default_factory=dict)
    tasks: tuple[ScanTask, ...] = ()
    #: The name of the trial, if the messages are suspects (`queue_core.segments.reader`).
    trial: str | None = None

    def __len__(self) -> int:
        return sum(len(task) for task in self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One life of a consumer: from one registration to the next with the same name."""

    #: Number of the name in the catalog.
    id: int
    #: The consumer's name.
    name: str
    #: Number of the life, from 1. A later life fences off the earlier ones.
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingConsumer(Consumer):
    """A consumer that soon settles what it holds, so it can hold suspects and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One firing of one consumer; it holds the messages until they are settled."""

    #: The consumer that fired.
    consumer: Consumer
    #: Number of the firing, which grows from 1 for each consumer; some can be left out.
    number: int
    #: Time of the firing by the catalog's clock, in microseconds since 1970 (UTC).
    fired_at: int
    #: Number of messages.
    messages: int


class ThisProcess(Enum):
    """All consumers that this process has registered."""

    ALL = 0


THIS_PROCESS = ThisProcess.ALL

#: Who must hold messages that are settled: a consumer, one by its name, one firing, any consumer of
#: this process, or (None) anybody.
Holder = Consumer | str | Ticket | ThisProcess | None


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a streaming query, and the facts that its sink knows."""

    query_id: str
    number: int
    #: How many rows it has.
    rows: int
    #: The sum of the hashes of its rows, which does not depend on their order; None: unknown.
    digest: int | None = None
    #: The digest of the entry in Spark's log that describes the batch; None: it cannot be read.
    entry: str | None = None
    #: The tickets in that entry, if all sources of the query are ignis queues.
    tickets: str | None = None


class Place(NamedTuple):
    """Where a batch for several queues is published: the store, with what a queue would have."""

    id: int
    #: The names of the queues.
    name: str


class TicketRange(NamedTuple):
    """The tickets of a consumer between two numbers."""

    consumer: Consumer
    #: Exclusive.
    after: int
    #: Inclusive.
    upto: int

    @staticmethod
    def of(ticket: Ticket) -> TicketRange:
        """Return the range of one ticket."""
        return TicketRange(ticket.consumer, ticket.number - 1, ticket.number)
