"""Clients of the console, and the command `ignis console` in a process of its own."""

import hashlib
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from tests.tree import ROOT

#: The address that the tests use, so that its name is an allowed one.
ORIGIN = "http://localhost:8413"


def log_in(client: TestClient) -> None:
    key = client.app.state.console.auth.key
    assert client.get("/login", params={"key": key}, follow_redirects=False).status_code == 303


def login_line(name: str, role: str, password: str) -> str:
    """The line of a login whose hash takes no time, unlike that of `ignis console-user`."""
    salt = bytes(16)
    digest = hashlib.scrypt(password.encode(), salt=salt, n=16, r=8, p=1, dklen=32)
    parts = [b64encode(part).decode() for part in (salt, digest)]
    return f"{name}:{role}:scrypt$16$8$1${'$'.join(parts)}"


def logged(client: TestClient, by: str = "console") -> list[dict[str, Any]]:
    """Return the acts that the log of a console shows, newest first; those of one way."""
    return [each for each in client.get("/api/log").json()["entries"] if each["by"] == by]


def token(client: TestClient) -> str:
    """The token that a form of this login brings."""
    return client.get("/api/session").json()["csrf"]


@contextmanager
def console(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `ignis console` on a store; yield the process and the address that it prints."""
    command = [sys.executable, "-m", "ignis_cli", "--path", str(folder), "console"]
    process = subprocess.Popen(
        [*command, "--port", "0", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        address = re.search(r"http\S+", line)
        assert address, line + process.stderr.read()
        yield process, address[0]
    finally:
        # A test that ends it lets a client wait for too long, which uvicorn reports.
        is_ended = process.poll() is not None
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) in (0, -signal.SIGTERM), rest
        assert is_ended or "Traceback" not in rest, rest
        process.stderr.close()
