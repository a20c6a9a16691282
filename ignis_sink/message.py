"""What driver and tasks send each other: targets and commit messages; and what Spark's log says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from queue_core.errors import NoSuchQueue, NoSuchStore
from queue_core.segments.stager import Stager
from queue_core.segments.staging_spec import StagingSpec
from queue_core.segments.storage import Storage
from queue_core.values.model import Staged, StagedOutput
from queue_core.values.schema import conform

if TYPE_CHECKING:
    # Not at the top: a query that loads waits for imports, and settles nothing.
    from queue_core.handling.gate import Tally
    from queue_core.values.outcomes import Settlement

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class AnyTarget(Protocol):
    """What the tasks of a load know of one queue, or of several."""

    def check_there(self, batch: int) -> None:
        """Raise an error if the store or the queue is gone."""

    def intake(self) -> AnyIntake:
        """Return what takes the rows of one task."""


class AnyIntake(Protocol):
    """What takes the rows of one task."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""

    def finish(self) -> Mapping[str, tuple[Staged, ...]]:
        """Write the waiting rows; return the segments of each queue, which are durable."""

    def discard(self) -> None:
        """Remove the staged segments if possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a load: a queue, which may not exist yet, and the storage of its segments."""

    #: Not shown, as it may have credentials.
    storage: str = field(repr=False)
    spec: StagingSpec
    #: The id of the store; None if it does not exist yet.
    store: str | None = None
    #: The error that there is no store or no queue; None if both are there.
    missing: NoSuchStore | NoSuchQueue | None = None

    def check_there(self, batch: int) -> None:
        """Raise an error if the store or the queue is gone; see `check_first`."""
        if self.missing is not None:
            check_first(self.missing, batch, self.spec.queue)

    def intake(self) -> Intake:
        """Return what takes the rows of one task."""
        return Intake(Storage.open(self.storage).of_store(self.store), self.spec)


class Intake:
    """Takes the rows of a task for one queue; `finish` returns the staged segments."""

    def __init__(self, storage: Storage, spec: StagingSpec) -> None:
        self._spec = spec
        self._stager = Stager(storage, spec)
        self.discard = self._stager.discard
        self.flush = self._stager.flush

    @property
    def waiting(self) -> int:
        """How many bytes of rows wait to be written."""
        return self._stager.waiting

    def finish(self) -> Mapping[str, tuple[Staged, ...]]:
        """Write the waiting rows; return the segments, which are durable."""
        return {self._spec.queue: self._stager.finish()}

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows, with the columns that the queue has."""
        # One row of a stranger must not stop the query.
        spec = self._spec
        for part in conform(rows, spec.schema, spec.queue, mends=True).to_batches():
            self._stager.add(part)


def check_first(missing: NoSuchStore | NoSuchQueue, batch: int, queue: str) -> None:
    """
    Raise an error unless a batch is the first of its query, which may make both.

    The first batch has a task even if it has no rows, so before a later one there were both. A
    queue that a later batch made would have lost the settings of the one that was dropped.

    Args:
        missing: The error that there is no store, or no queue.
        batch: The number of the batch.
        queue: The name of the queue.
    """
    if batch == 0:
        return
    before = f"where the query has loaded its batches before batch {batch}; nothing was loaded. "
    if isinstance(missing, NoSuchStore):
        raise NoSuchStore(
            f"{str(missing).partition(';')[0]}, {before}Bring the store back, or remove the "
            "query's checkpoint, so that it starts as a new one. If the sink is to write to "
            "another store from now on, create the queue there first: Store.open and "
            "Store.create_queue, or ignis create"
        )
    raise NoSuchQueue(
        f"the store has no queue {queue!r}, {before}If it was dropped, create it again with its "
        "settings, by Store.create_queue or ignis create"
    )


@dataclass
class LoadMessage(WriterCommitMessage):
    """The segments that a task has staged, and their target."""

    target: AnyTarget
    #: By the name of the queue.
    staged: Mapping[str, tuple[Staged, ...]]
    query_id: str | None
    #: In a streaming query: the number of rows of the task, and their digest.
    rows: int = 0
    digest: int = 0


@dataclass
class SettleMessage(WriterCommitMessage):
    """The outcomes that a task has collected."""

    settlement: Settlement
    query_id: str | None
    #: The name of a handler that returned nothing in this task.
    refusal: str | None = None
    #: The calls of the handler in this task, if it has a breaker.
    tally: Tally | None = None
    #: The rows that the handler has returned for the output queue, if any.
    output: StagedOutput | None = None
    #: How long the calls took: values of the column `TOOK`.
    took: tuple[str, ...] = ()


def current_query() -> str | None:
    """Return the id of the streaming query of this task; the driver does not know it."""
    return _local_property(_QUERY_ID)


def current_batch() -> int | None:
    """Return the number of the micro-batch of this task; None outside of a streaming query."""
    number = _local_property(_BATCH_ID)
    return None if number is None else int(number)


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


def read_entry(checkpoint: str | None, number: int) -> tuple[str | None, str | None]:
    """
    Return the digest of the entry of a batch, and its tickets if all sources are ignis queues.

    Spark writes the entry once, before the batch runs, with the time and the end of each source. A
    batch that runs again has the same entry, and one that is planned anew has another one.

    Each is None if the checkpoint is not in a folder of this machine.
    """
    folder = _folder(checkpoint)
    if folder is None:
        return None, None
    try:
        data = folder.joinpath("offsets", str(number)).read_bytes()
    except OSError:
        return None, None
    return hashlib.blake2b(data, digest_size=16).hexdigest(), _tickets(data)


def _folder(checkpoint: str | None) -> Path | None:
    if not checkpoint:
        return None
    if checkpoint.startswith("file:"):
        return Path(unquote(urlsplit(checkpoint).path))
    return None if re.match(r"[A-Za-z][\w+.-]*:", checkpoint) else Path(checkpoint)


def _tickets(data: bytes) -> str | None:
    """Return the offsets of an entry, after its version and its metadata."""
    offsets = data.decode(errors="replace").splitlines()[2:]
    try:
        ours = all({*json.loads(line)} == {"consumer", "ticket"} for line in offsets)
    except (TypeError, ValueError):
        return None
    return "\n".join(offsets) if ours and offsets else None
