"""The target of a write: plain values, which are sent to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core.errors import NoSuchStore
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
    #: Where there is no store, as a sentence; None if there is one.
    missing: str | None = None

    def check_there(self, batch: int) -> None:
        """Raise `NoSuchStore` if there is no store, and the query has had batches before this."""
        if self.missing is not None:
            check_first(self.missing, batch)

    def stager(self) -> Stager:
        """Return a stager for one task."""
        return Stager(Storage.open(self.storage).of_store(self.store), self.spec)


def check_first(missing: str, batch: int) -> None:
    """
    Raise `NoSuchStore` unless a batch is the first of its query, which may make the store.

    The first batch has a task even if it has no rows, so before a later one there was a store.

    Args:
        missing: The sentence that says where there is no store.
        batch: The number of the batch.
    """
    if batch > 0:
        raise NoSuchStore(
            f"{missing.partition(';')[0]}, where the query has loaded its batches before batch "
            f"{batch}; nothing was loaded. Bring the store back, or remove the query's checkpoint, "
            "so that it starts as a new one. If the sink is to write to another store from now on, "
            "create that one first: Store.open makes it"
        )
