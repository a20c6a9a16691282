"""Ports of servers that are stopped and started again."""

from __future__ import annotations

import random
import socket


def lasting_port() -> int:
    """Return a port that the system gives to nobody else, even while the server is stopped."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
