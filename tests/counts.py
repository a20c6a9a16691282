"""What became of messages, in the seven counts of RabbitMQ's own crash tests.

Source: the queue checker of https://github.com/rabbitmq/jepsen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many messages there are of each kind."""

    #: Were to be loaded.
    attempt: int
    #: Their load has returned.
    acknowledged: int
    #: Were to be loaded, and came out as they went in.
    ok: int
    #: Are acknowledged, and are gone without having come out.
    lost: int
    #: Came out, and never went in like that.
    unexpected: int
    #: Came out again, without a reason.
    duplicated: int
    #: Came out though their load never returned.
    recovered: int

    @property
    def exact(self) -> bool:
        """Whether nothing is lost, doubled or made up."""
        return not (self.lost or self.unexpected or self.duplicated)

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))
