"""Lines of a file of logins: a name, a role, and a hash of the password. And the file of a token.

A line is ``name:role:scrypt$N$r$p$salt$hash``, with salt and hash in base64. Empty lines and lines
that begin with ``#`` are ignored. Source: the parameters are those that OWASP proposes for scrypt
with 32 MB.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from queue_core.errors import BadOption

_N, _R, _P = 1 << 15, 8, 3
_SALT_BYTES, _HASH_BYTES = 16, 32
#: The most memory that a line of the file may ask for.
_MOST_MEMORY = 256 << 20
#: The fewest characters of a password.
SHORTEST = 12
#: The fewest characters of a token.
SHORTEST_TOKEN = 16
_NAME = re.compile(r"[\w.@+-]{1,64}", re.ASCII)
_LINE = re.compile(
    rf"(?P<name>{_NAME.pattern}):(?P<role>look|operate):"
    r"(?P<hashed>scrypt\$(?P<n>\d+)\$(?P<r>\d+)\$(?P<p>\d+)\$(?P<salt>[^$]*)\$(?P<hash>[^$]*))",
    re.ASCII,
)


class Role(StrEnum):
    """What a login may do."""

    LOOK = "look"
    OPERATE = "operate"


class Login(NamedTuple):
    """One line of the file."""

    name: str
    role: Role
    hash: str


def line(name: str, role: Role, password: str) -> str:
    """Return the line of a login; raises `BadOption` for a bad name or a short password."""
    check_name(name)
    if len(password) < SHORTEST:
        raise BadOption(f"the password has {len(password)} characters; use {SHORTEST} or more")
    salt = os.urandom(_SALT_BYTES)
    parts = [_encoded(salt), _encoded(_hash(password, salt, _N, _R, _P))]
    return f"{name}:{role}:scrypt${_N}${_R}${_P}${'$'.join(parts)}"


def check_name(name: str) -> str:
    """Return *name* if a login may have it; raises `BadOption`."""
    if not _NAME.fullmatch(name):
        raise BadOption(
            f"login name {name!r}: use 1 to 64 letters, digits and any of the signs . @ + - _"
        )
    return name


def read_bytes(path: Path) -> bytes:
    """Return what a file of logins contains; raises `BadOption`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadOption(f"--users {path}: it cannot be read: {error}") from error


def parse(data: bytes, path: Path) -> dict[str, Login]:
    """Return the logins of a file's content; raises `BadOption`, which names the line at fault."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadOption(f"--users {path}: it cannot be read: {error}") from error
    found: dict[str, Login] = {}
    for number, text in enumerate(lines, start=1):
        if not text.strip() or text.startswith("#"):
            continue
        login = _login(text.strip())
        if login is None or login.name in found:
            raise BadOption(
                f"--users {path}: line {number} is not a login, or repeats a name; write lines "
                "with: ignis console-user NAME --role look"
            )
        found[login.name] = login
    if not found:
        raise BadOption(f"--users {path}: it has no logins; make one with: ignis console-user NAME")
    return found


def read_token(path: Path) -> str:
    """Read a file with the token for the metrics; raises `BadOption`."""
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--metrics-token {path}: it cannot be read: {error}") from error
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise BadOption(
            f"--metrics-token {path}: the file must have one word of {SHORTEST_TOKEN} or more "
            "characters, such as: openssl rand -hex 16"
        )
    return token


def verify(logins: Mapping[str, Login], name: str, password: str) -> Login | None:
    """Return the login if the password is right. An unknown name takes as long as a known one."""
    login = logins.get(name)
    right = _matches(password, login.hash if login else _NOBODY)
    return login if right and login is not None else None


def _matches(password: str, text: str) -> bool:
    _, n, r, p, salt, expected = text.split("$")
    found = _hash(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, base64.b64decode(expected))


def _login(text: str) -> Login | None:
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    try:
        n, r, p = map(int, found.group("n", "r", "p"))
        _, digest = (base64.b64decode(part, validate=True) for part in found.group("salt", "hash"))
    except ValueError:
        return None
    possible = n > 1 and n & (n - 1) == 0 and r > 0 and 0 < p <= 16
    if len(digest) != _HASH_BYTES or not possible or 128 * n * r > _MOST_MEMORY:
        return None
    return Login(found["name"], Role(found["role"]), found["hashed"])


def _hash(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * _MOST_MEMORY, dklen=_HASH_BYTES
    )


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


#: A hash that no password has, for names that are not known.
_NOBODY = f"scrypt${_N}${_R}${_P}${_encoded(bytes(_SALT_BYTES))}${_encoded(bytes(_HASH_BYTES))}"
