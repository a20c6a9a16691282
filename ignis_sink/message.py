"""Commit messages, which a task reports to the driver, and what Spark's log says of a batch."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ignis_sink.target import Target
from queue_core.values.model import Staged

if TYPE_CHECKING:
    # Not at the top: a query that loads waits for imports, and settles nothing.
    from queue_core.handling.gate import Tally
    from queue_core.values.outcomes import Settlement

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class LoadMessage(WriterCommitMessage):
    """The segments that a task has staged, and their target."""

    target: Target
    staged: tuple[Staged, ...]
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
