"""Decisions: the answers of a queued message about a new one, and the order of asking."""

from __future__ import annotations

from enum import StrEnum

#: The order in which the queued messages of a key are asked.
NEWEST, OLDEST = "newest", "oldest"
ORDERS = (NEWEST, OLDEST)


class Decision(StrEnum):
    """
    The answer of a queued message about a new one of its key.

    A check returns one decision for each pair. The values are texts, such as ``"queue and
    delete"``, which a vectorised check returns. Source: Herzner, Message Queue Patterns, table 1
    (decision indicators of the Smart-Message Queue).

    Attributes:
        DONT_CARE: The two are unrelated; the next queued message is asked.
        IGNORE: The new message is left out.
        QUEUE: The new message is queued.
        IGNORE_AND_DELETE: The new message is left out, and the queued one is deleted.
        QUEUE_AND_DELETE: The new message is queued, and the queued one is deleted.
    """

    DONT_CARE = "don't care"
    IGNORE = "ignore"
    QUEUE = "queue"
    IGNORE_AND_DELETE = "ignore and delete"
    QUEUE_AND_DELETE = "queue and delete"

    @property
    def queues(self) -> bool:
        """Whether the new message is queued."""
        return self in (Decision.QUEUE, Decision.QUEUE_AND_DELETE)

    @property
    def deletes(self) -> bool:
        """Whether the queued message is deleted."""
        return self in (Decision.IGNORE_AND_DELETE, Decision.QUEUE_AND_DELETE)
