"""
Machines with addresses of their own, as network namespaces of Linux.

Each host has a cable to one switch. Needs root, and changes nothing of the machine's own network.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

#: The addresses: that of the switch ends with 1.
_NET = "10.77.0"
_CLONE_NEWNET = 0x40000000
_SPACES = Path("/run/netns")


class Host:
    """A machine: a network namespace, and one end of a cable in it."""

    def __init__(self, name: str, number: int, token: str) -> None:
        self.name = name
        self.address = f"{_NET}.{number}"
        self.space = f"ignis-{token}-{name}"
        #: The end of its cable at the switch, and its own end.
        self.cable, self.port = f"ig{token}s{number}", f"ig{token}h{number}"

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let this thread, and the processes that it starts, be on this machine."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            enter(self.space)
            yield
        finally:
            _set_network(before)
            os.close(before)

    def run(self, *command: str) -> None:
        """Run a command of the network on this machine."""
        run("ip", "netns", "exec", self.space, *command)


class Network:
    """Some hosts at one switch, which this process reaches too."""

    def __init__(self, names: Sequence[str]) -> None:
        token = secrets.token_hex(2)
        self._switch = f"ig{token}"
        self.hosts = {name: Host(name, 10 + at, token) for at, name in enumerate(names)}
        #: Those with a fault.
        self.troubled: set[Host] = set()

    def __enter__(self) -> Network:
        with ExitStack() as stack:
            run("ip", "link", "add", self._switch, "type", "bridge")
            stack.callback(run, "ip", "link", "del", self._switch)
            run("ip", "address", "add", f"{_NET}.1/24", "dev", self._switch)
            run("ip", "link", "set", self._switch, "up")
            for host in self.hosts.values():
                run("ip", "netns", "add", host.space)
                stack.callback(run, "ip", "netns", "del", host.space)
                ends = ("add", host.cable, "type", "veth", "peer", "name", host.port)
                run("ip", "link", *ends, "netns", host.space)
                run("ip", "link", "set", host.cable, "master", self._switch, "up")
                host.run("ip", "link", "set", "lo", "up")
                host.run("ip", "address", "add", f"{host.address}/24", "dev", host.port)
                host.run("ip", "link", "set", host.port, "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def others(self, host: Host) -> list[Host]:
        """Return all hosts but one."""
        return [other for other in self.hosts.values() if other is not host]


def is_possible() -> bool:
    """Return whether this process may make such hosts."""
    if os.geteuid() != 0:
        return False
    with suppress(OSError, subprocess.CalledProcessError), Network(["trial"]):
        return True
    return False


def enter(space: str) -> None:
    """Let this thread be in a network namespace from now on."""
    file = os.open(_SPACES / space, os.O_RDONLY)
    try:
        _set_network(file)
    finally:
        os.close(file)


def _set_network(file: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(file, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")


def run(*command: str) -> None:
    """Run a command of the network; raises `CalledProcessError`."""
    subprocess.run(command, check=True, capture_output=True, text=True)
