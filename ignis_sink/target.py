"""The target of a write: plain values, which are sent to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core.errors import NoSuchQueue, NoSuchStore
from queue_core.segments.stager import Stager
from queue_core.segments.staging_spec import StagingSpec
from queue_core.segments.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A queue, which may not exist yet, and the storage of its segments."""

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

    def stager(self) -> Stager:
        """Return a stager for one task."""
        return Stager(Storage.open(self.storage).of_store(self.store), self.spec)


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
