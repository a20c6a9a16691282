"""What driver and tasks send each other: targets and commit messages; and what Spark's log says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from queue_core.errors import NoSuchQueue, NoSuchStore, SchemaMismatch
from queue_core.values.model import QueueInfo, Staged, StagedOutput
from queue_core.values.names import check_queue, listed, nearest

if TYPE_CHECKING:
    # Not at the top: a query that loads waits for imports, and settles nothing.
    from queue_core.handling.gate import Tally
    from queue_core.values.outcomes import Settlement

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """How a column routes rows into several queues."""

    #: The column with the name of the queue of each row; queues do not get it.
    column: str
    #: Why other queues of the store do not take the rows, by name.
    unfit: Mapping[str, str]
    #: The only names that rows may have; None: any.
    only: frozenset[str] | None
    #: What queues that do not exist are like; None: their rows are refused.
    template: QueueInfo | None

    def allows(self, queue: str) -> bool:
        """Whether rows may have the name of a queue."""
        return self.only is None or queue in self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a load: its queues, and the storage of their segments."""

    #: Not shown, as it may have credentials.
    storage: str = field(repr=False)
    #: The queues that take the rows, by name. Without routes, it is one, which may not exist yet.
    specs: Mapping[str, QueueInfo]
    #: The id of the store; None if it does not exist yet.
    store: str | None = None
    #: The error that there is no store or no queue; None if both are there.
    missing: NoSuchStore | NoSuchQueue | None = None
    routes: Routes | None = None

    @property
    def spec(self) -> QueueInfo:
        """The only queue of a target without routes."""
        (spec,) = self.specs.values()
        return spec

    def check_there(self, batch: int) -> None:
        """Raise an error if the store or the queue is gone; see `check_first`."""
        if self.missing is not None:
            check_first(self.missing, batch, self.spec.name)

    def spec_of(self, queue: str) -> QueueInfo:
        """
        Return the description of a queue whose name `check_all` has accepted.

        Raises `SchemaMismatch` and `BadName`.
        """
        if queue in self.specs:
            return self.specs[queue]
        assert self.routes is not None, "check_all has refused the name"
        column = self.routes.column
        if not self.routes.allows(queue):
            raise SchemaMismatch(
                f"column {column!r} names queue {queue!r}, which the option queues does not name; "
                "nothing was loaded"
            )
        if queue in self.routes.unfit:
            why = self.routes.unfit[queue]
            raise SchemaMismatch(f"column {column!r} names queue {queue!r}: {why}")
        assert self.routes.template is not None, "check_all has refused the name"
        return replace(self.routes.template, id=0, name=check_queue(queue), schema_version=1)

    def check_all(self, names: list[str]) -> None:
        """Raise `NoSuchQueue` that names all of some queues that do not exist."""
        routes = self.routes
        if routes is None or routes.template is not None:
            return
        known = {*self.specs, *routes.unfit}
        unknown = [each for each in names if each not in known and routes.allows(each)]
        if not unknown:
            return
        what, near = "queues", ""
        if len(unknown) == 1:
            what, near = "a queue", nearest(unknown[0], self.specs)
        raise NoSuchQueue(
            f"column {routes.column!r} names {what} that the store does not have: "
            f"{listed(unknown, quoted=True)}{near}; nothing was loaded. Create them first, or set "
            "the option template to a queue whose columns, shards, key and settings new queues get"
        )


def check_first(missing: NoSuchStore | NoSuchQueue, batch: int, queue: str) -> None:
    """
    Raise an error for what is *missing*, unless *batch* is the first one, which creates it.

    Even a first batch without rows has a task, so both existed before any later batch. A later
    batch must not create a dropped queue again: the settings would be lost.
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

    target: Target
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
    #: The target of the rows, if the handler may return some.
    target: Target | None = None


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
    lines = data.decode(errors="replace").splitlines()
    offsets = lines[2:]
    if lines[:1] == ["v2"]:
        # Each comes after the name of its source, and the sources may change their order.
        offsets = sorted(line.partition(":")[2] for line in offsets)
    try:
        ours = all({*json.loads(line)} == {"consumer", "ticket"} for line in offsets)
    except (TypeError, ValueError):
        return None
    return "\n".join(offsets) if ours and offsets else None
