"""The answers that a queued message can give about a new one, and the order of asking."""

from __future__ import annotations

from enum import StrEnum

#: In which order the queued messages of a key are asked.
NEWEST, OLDEST = "newest", "oldest"
ORDERS = (NEWEST, OLDEST)


class Decision(StrEnum):
    """What becomes of the new message and of the queued one that is asked. Source: Herzner."""

    #: No matter to this one: the next is asked.
    DONT_CARE = "don't care"
    #: The new message is left out.
    IGNORE = "ignore"
    #: The new message is queued.
    QUEUE = "queue"
    #: The new message is left out, and the queued one is gone.
    IGNORE_AND_DELETE = "ignore and delete"
    #: The new message is queued, and the queued one is gone.
    QUEUE_AND_DELETE = "queue and delete"

    @property
    def queues(self) -> bool:
        """Whether the new message is queued."""
        return self in (Decision.QUEUE, Decision.QUEUE_AND_DELETE)

    @property
    def deletes(self) -> bool:
        """Whether the queued message is gone."""
        return self in (Decision.IGNORE_AND_DELETE, Decision.QUEUE_AND_DELETE)
