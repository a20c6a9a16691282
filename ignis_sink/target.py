"""The target of a write: plain values, which are sent to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    def stager(self) -> Stager:
        """Return a stager for one task."""
        return Stager(Storage.open(self.storage).of_store(self.store), self.spec)
