"""Faults of the network between the machines of a soak."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.hosts import Host, Network, run
from tests.soak.nemesis import Fault

#: No host has it.
_NOBODY = "02:00:00:00:00:99"
#: What is left of a cable in trouble: some dozen packets a second.
_SLOW = ("rate", "300kbit", "burst", "3000", "latency", "800ms")

#: What a network does, by the name of the fault.
KINDS = ("cut", "hears nothing", "is not heard", "slow")


@dataclass(eq=False, kw_only=True)
class Partition(Fault):
    """The network of one machine is cut, in both directions or one, or is very slow."""

    weight, seconds = 4.0, (0.5, 12.0)

    kind: str
    #: Whether a Spark query, which an outage ends, needs calm seconds between them.
    shared: bool
    network: Network
    chance: random.Random
    _healing: ExitStack = field(default_factory=ExitStack)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its kind."""
        return f"network {self.kind}"

    def possible(self) -> bool:
        """Return whether all cables are whole: two faults of one machine would mix."""
        return not self.network.troubled

    def begin(self) -> str | None:
        """Begin, at a machine by chance."""
        host = self.chance.choice([*self.network.hosts.values()])
        self.network.troubled.add(host)
        self._healing.callback(self.network.troubled.discard, host)
        heals = self._healing.callback
        match self.kind:
            case "cut":
                run("ip", "link", "set", host.cable, "down")
                heals(run, "ip", "link", "set", host.cable, "up")
            case "hears nothing":
                for other in self.network.others(host):
                    self._mislead(other, host)
            case "is not heard":
                for other in self.network.others(host):
                    self._mislead(host, other)
            case "slow":
                for end, device in ((run, host.cable), (host.run, host.port)):
                    end("tc", "qdisc", "add", "dev", device, "root", "tbf", *_SLOW)
                    heals(end, "tc", "qdisc", "del", "dev", device, "root")
        return None

    def heal(self) -> None:
        """Let all packets arrive again."""
        self._healing.close()

    def _mislead(self, sender: Host, receiver: Host) -> None:
        """Let packets to the receiver arrive nowhere; its own still come."""
        place = (receiver.address, "dev", sender.port)
        sender.run("ip", "neigh", "replace", *place, "lladdr", _NOBODY, "nud", "permanent")
        self._healing.callback(sender.run, "ip", "neigh", "del", *place)
