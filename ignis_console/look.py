"""What was read from the store, with the moment of the reading."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Generic, TypeVar

from queue_core.errors import Damaged, IgnisError, NoSuchStore

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Look(Generic[Seen]):
    """The latest reading, and the error of a later one, if it failed."""

    seen: Seen
    #: By the monotonic clock.
    read_at: float
    error: str | None = None

    @property
    def age(self) -> float:
        """Seconds since the reading began."""
        return time.monotonic() - self.read_at


def ends_looks(error: IgnisError) -> bool:
    """
    Return whether nothing that was read before an error may be shown any more.

    A store that is gone or damaged does not come back by itself, as one that cannot be reached
    does.
    """
    return isinstance(error, NoSuchStore | Damaged)
