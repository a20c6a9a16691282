"""Publications: the last batch of each streaming query, and the claim on the files of a load."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection, select

from queue_core.catalog import dialect, restored, seals, segments
from queue_core.catalog.tables import publications
from queue_core.errors import PublicationRefused, StaleCheckpoint
from queue_core.model import Batch, QueueInfo, Staged
from queue_core.segments.storage import Storage


def claim(connection: Connection, storage: Storage, staged: Iterable[Staged]) -> None:
    """Protect the files of staged segments from removal; raises `PublicationRefused`."""
    locations = [segment.location for segment in staged if segment.location is not None]
    segments.claim(connection, locations)
    # A file that vacuum has removed and forgotten can still be claimed.
    missing = storage.missing(locations)
    if missing:
        raise PublicationRefused(
            f"segment {min(missing)} was cleaned up before it was published; write the rows again"
        )


def is_new_batch(connection: Connection, queue: QueueInfo, batch: Batch) -> bool:
    """
    Record the batch of a query; return False if it needs no work.

    That is a batch without rows, or the last one again: Spark repeats only that one. Raises
    `StaleCheckpoint` for any other batch whose number was recorded.
    """
    restored.report_batches(connection, queue, batch)
    content = {"rows": batch.rows, "digest": _text(batch.digest)}
    content |= {"entry": batch.entry, "tickets": batch.tickets}
    row = {"queue_id": queue.id, "query_id": batch.query_id, "batch_id": batch.number}
    row |= {"content": json.dumps(content)}
    statement = (
        dialect.of(connection)
        .insert_new(publications)
        .values(published_at=dialect.now(), **seals.sealed(publications, row))
    )
    columns = ("batch_id", "published_at", "content", "seal")
    recorded = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[publications.c.queue_id, publications.c.query_id],
            set_={name: statement.excluded[name] for name in columns},
            where=publications.c.batch_id < statement.excluded.batch_id,
        ).returning(publications.c.batch_id)
    )
    if recorded.first() is not None:
        return True
    if batch.rows:
        _check_repeated(connection, queue, batch)
    return False


def _check_repeated(connection: Connection, queue: QueueInfo, batch: Batch) -> None:
    """Raise `StaleCheckpoint` unless the batch is the one that was recorded last."""
    last = connection.execute(
        select(publications.c.batch_id, publications.c.content).where(
            publications.c.queue_id == queue.id, publications.c.query_id == batch.query_id
        )
    ).one()
    if batch.number < last.batch_id:
        found = f"it has already recorded batch {last.batch_id} of the query"
    elif not _is_same(last.content, batch):
        found = "it has already recorded a batch of that number with other rows"
    else:
        return
    raise StaleCheckpoint(
        f"queue {queue.name!r}: batch {batch.number} of query {batch.query_id} has {batch.rows} "
        f"rows, and {found}, so the query's checkpoint went back to an earlier state; nothing was "
        "changed. Restore the newest copy of the checkpoint, or remove its whole folder, metadata "
        "included: the query then starts as a new one, and its last batch may come twice"
    )


def _is_same(recorded: str | None, batch: Batch) -> bool:
    """Whether a batch is the recorded one, whose number it has."""
    if recorded is None:
        # An older ignis did not record its content.
        return True
    content = json.loads(recorded)
    if content["entry"] is not None and batch.entry is not None:
        if content["entry"] == batch.entry:
            # Even if its values differ: a query may compute them at random.
            return True
        if batch.tickets is None or content["tickets"] != batch.tickets:
            return False
        # It was planned again, from the tickets that it had before.
    if content["digest"] is not None and batch.digest is not None:
        return (content["rows"], content["digest"]) == (batch.rows, _text(batch.digest))
    return bool(content["rows"] == batch.rows)


def _text(digest: int | None) -> str | None:
    return None if digest is None else f"{digest:016x}"
