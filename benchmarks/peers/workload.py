"""What a workload is: cases, peers, and one measurement of a peer in a case."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.peers.contenders import task_peers
from benchmarks.peers.results import Result
from benchmarks.peers.servers import Servers


@dataclass(frozen=True, slots=True)
class Scale:
    """How long a run is."""

    name: str
    #: How often each peer is measured in each case.
    rounds: int
    #: The share of the messages of the full run.
    share: float
    #: The most seconds of one measurement that can end early.
    seconds: float

    def of(self, messages: int, least: int = 1) -> int:
        """Return how many messages to send, of those of the full run."""
        return max(int(messages * self.share), least)


SCALES = {
    scale.name: scale
    for scale in (
        Scale("small", rounds=1, share=0.02, seconds=1.0),
        Scale("full", rounds=3, share=1.0, seconds=3.0),
    )
}


class Workload(ABC):
    """A question, asked to several peers."""

    #: How the command line and the rows name it.
    name: ClassVar[str]
    #: The heading of its part of the table.
    title: ClassVar[str]

    def peers(self) -> Sequence[Any]:
        """Return the contenders; by default all of plain Python."""
        return task_peers()

    @abstractmethod
    def cases(self, scale: Scale) -> Sequence[str]:
        """Return the names of its cases."""

    def rounds(self, case: str, scale: Scale) -> int:
        """Return how often each peer is measured in a case."""
        return scale.rounds

    @abstractmethod
    def measure(self, peer: Any, case: str, scale: Scale, servers: Servers) -> list[Result]:
        """Measure a peer once."""
