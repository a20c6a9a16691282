"""Publications: the last batch of each streaming query, and the claim on the files of a load."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from queue_core.catalog import dialect, segments
from queue_core.catalog.tables import publications
from queue_core.errors import PublicationRefused
from queue_core.model import Staged
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


def is_new_batch(connection: Connection, queue_id: int, query_id: str, batch_id: int) -> bool:
    """Record the batch of a query; return False if this batch or a later one was recorded."""
    statement = dialect.insert_new(connection, publications).values(
        queue_id=queue_id,
        query_id=query_id,
        batch_id=batch_id,
        published_at=dialect.now(),
    )
    recorded = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[publications.c.queue_id, publications.c.query_id],
            set_={
                "batch_id": statement.excluded.batch_id,
                "published_at": statement.excluded.published_at,
            },
            where=publications.c.batch_id < statement.excluded.batch_id,
        ).returning(publications.c.batch_id)
    )
    return recorded.first() is not None
