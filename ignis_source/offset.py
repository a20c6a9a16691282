"""The offset that Spark checkpoints: which consumer has come to which ticket.

Spark compares offsets as JSON text, so the keys always have this order and nothing in it changes
unless the ticket does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queue_core.errors import BadName, Damaged
from queue_core.names import check_consumer


@dataclass(frozen=True, slots=True)
class Offset:
    """The tickets of a consumer up to *ticket*, inclusive; 0 is before the first."""

    consumer: str
    ticket: int

    def to_json(self) -> dict[str, Any]:
        """What Spark logs."""
        return {"consumer": self.consumer, "ticket": self.ticket}

    @staticmethod
    def from_json(logged: dict[str, Any]) -> Offset:
        """Read what `to_json` wrote, by this version or an older one; raises `Damaged`."""
        try:
            return Offset(check_consumer(logged["consumer"]), int(logged["ticket"]))
        except (BadName, KeyError, TypeError, ValueError) as error:
            raise Damaged(
                f"the checkpoint holds {logged!r}, which is no offset of an ignis source; "
                "was it written by another source?"
            ) from error
