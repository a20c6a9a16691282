"""Ports for servers of benchmarks and tests."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def lasting_port() -> int:
    """Return a port that the system gives to nobody else, even while its server is stopped."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
