"""Publications: the last batch that each streaming query has published, and the files of a load."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from queue_core.catalog import dialect, segments
from queue_core.catalog.tables import publications
from queue_core.errors import PublicationRefused
from queue_core.model import Staged
from queue_core.segments.storage import Storage


def claim(connection: Connection, storage: Storage, staged: Iterable[Staged]) -> None:
    """Make the files of staged segments safe from removal; raises `PublicationRefused`."""
    locations = [segment.location for segment in staged if segment.location is not None]
    segments.claim(connection, locations)
    # One that was removed and forgotten can be claimed.
    missing = storage.missing(locations)
    if missing:
        raise PublicationRefused(
            f"segment {min(missing)} was cleaned up before it was published; write the rows again"
        )


def is_new_batch(connection: Connection, queue_id: int, query_id: str, batch_id: int) -> bool:
    """Record that a query publishes a batch; False when it, or a later one, is there already."""
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
