"""Faults of the network between the machines of a soak."""

from __future__ import annotations

import random
from dataclasses import dataclass

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
    _host: Host | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its kind."""
        return f"network {self.kind}"

    def possible(self) -> bool:
        """Return whether all cables are whole: two faults of one machine would mix."""
        return not any(each for each in _troubled if each in self.network.hosts.values())

    def begin(self) -> str | None:
        """Begin, at a machine by chance."""
        self._host = host = self.chance.choice([*self.network.hosts.values()])
        _troubled.add(host)
        match self.kind:
            case "cut":
                run("ip", "link", "set", host.cable, "down")
            case "hears nothing":
                for other in self.network.others(host):
                    _mislead(other, host)
            case "is not heard":
                for other in self.network.others(host):
                    _mislead(host, other)
            case "slow":
                run("tc", "qdisc", "add", "dev", host.cable, "root", "tbf", *_SLOW)
                host.run("tc", "qdisc", "add", "dev", host.port, "root", "tbf", *_SLOW)
        return None

    def heal(self) -> None:
        """Let all packets arrive again."""
        host = self._host
        if host is None:
            return
        match self.kind:
            case "cut":
                run("ip", "link", "set", host.cable, "up")
            case "hears nothing":
                for other in self.network.others(host):
                    _lead(other, host)
            case "is not heard":
                for other in self.network.others(host):
                    _lead(host, other)
            case "slow":
                run("tc", "qdisc", "del", "dev", host.cable, "root")
                host.run("tc", "qdisc", "del", "dev", host.port, "root")
        _troubled.discard(host)
        self._host = None


#: Hosts with a fault.
_troubled: set[Host] = set()


def _mislead(sender: Host, receiver: Host) -> None:
    """Let packets to the receiver arrive nowhere; its own still come."""
    entry = (receiver.address, "lladdr", _NOBODY, "dev", sender.port, "nud", "permanent")
    sender.run("ip", "neigh", "replace", *entry)


def _lead(sender: Host, receiver: Host) -> None:
    sender.run("ip", "neigh", "del", receiver.address, "dev", sender.port)
