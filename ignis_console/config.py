"""The options of the console, checked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from queue_core.errors import BadOption
from queue_core.watching.problems import OLDEST_WANTED

#: The addresses of this machine alone.
LOOPBACK = frozenset({"127.0.0.1", "::1"})
#: Names of headers (RFC 9110).
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that browsers send by themselves, or that have another meaning here.
_OF_BROWSERS = re.compile(
    "(accept|content|if|sec)(-.*)?|authorization|connection|cookie|expect|host|keep-alive|origin|"
    "range|referer|te|trailer|transfer-encoding|upgrade|user-agent|via|x-csrf-token|x-live",
    re.IGNORECASE,
)
#: Paths under which a reverse proxy may have the console.
_ROOT = re.compile(r"(/[A-Za-z0-9._~-]+)+")
#: The port by default.
PORT = 8413


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """
    Options of the console.

    Without *users* and *proxy_header*, there is one login: a key that is made at the start.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    #: A file of logins.
    users: Path | None = None
    #: A header by which a reverse proxy names the login.
    proxy_header: str | None = None
    #: The logins of that header that may operate; all other logins may look.
    proxy_operators: frozenset[str] = frozenset()
    #: The addresses from which that header is believed.
    proxy_addresses: frozenset[str] = LOOPBACK
    #: Further names under which browsers may reach the console.
    names: Collection[str] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    #: Whether other machines may reach the console without TLS.
    plain: bool = False
    #: Whether nobody may operate, whatever the role of the login.
    look_only: bool = False
    #: A file to which each action is appended, as a line of JSON.
    action_log: Path | None = None
    #: A file with the token for the metrics.
    metrics_token: Path | None = None
    oldest_wanted: float = OLDEST_WANTED
    #: The path under which a reverse proxy has the console, such as ``/ignis``.
    root_path: str = ""
    #: Whether cookies are for TLS alone, even if neither the console nor a header speaks of it.
    secure_cookie: bool = False

    def __post_init__(self) -> None:
        if self.root_path and not is_root(self.root_path):
            raise BadOption(f"--root-path {self.root_path!r}: use a path such as /ignis")
        if self.users is not None and self.proxy_header is not None:
            raise BadOption("give either --users or --proxy-header, not both")
        if self.proxy_operators and self.proxy_header is None:
            raise BadOption("--proxy-operator needs --proxy-header")
        if self.proxy_addresses != LOOPBACK and self.proxy_header is None:
            raise BadOption("--proxy-address needs --proxy-header")
        if self.proxy_header is not None:
            _check_header(self.proxy_header)
        for address in self.proxy_addresses:
            _address(address)
        if (self.certificate is None) != (self.private_key is None):
            raise BadOption("--tls-certificate and --tls-key belong together: give both")
        if not (self.is_local or self.has_tls or self.plain):
            raise BadOption(
                f"--host {self.host}: other machines could read passwords and messages on the way; "
                "give --tls-certificate and --tls-key, or --plain behind a proxy that has TLS"
            )

    @property
    def trusted_addresses(self) -> frozenset[str]:
        """The addresses from which the header of a proxy is believed, in their usual form."""
        return frozenset(map(_address, self.proxy_addresses))

    @property
    def has_tls(self) -> bool:
        """Whether the console itself speaks TLS."""
        return self.certificate is not None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def allowed_names(self) -> frozenset[str]:
        """The names that the header Host may have, without ports and in lower case."""
        own = {"localhost", "127.0.0.1", "::1", self.host, *self.names}
        return frozenset(name.lower() for name in own)

    def url(self, port: int) -> str:
        """Return the address of the console: for a browser on this machine, or by its name."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
        if self.names and not self.is_local:
            host = next(iter(self.names))
        return f"{'https' if self.has_tls else 'http'}://{host}:{port}{self.root_path}"


def is_root(path: str) -> bool:
    """Return whether a reverse proxy may have the console under a path."""
    return bool(_ROOT.fullmatch(path))


def _check_header(name: str) -> None:
    """Raise `BadOption` unless only a proxy sends a header."""
    if not _HEADER.fullmatch(name):
        raise BadOption(f"--proxy-header {name!r}: use the name of a header, as X-Forwarded-User")
    if _OF_BROWSERS.fullmatch(name):
        raise BadOption(
            f"--proxy-header {name}: browsers send it too; let the proxy set a header of its own, "
            "such as X-Forwarded-User"
        )


def _address(text: str) -> str:
    """Return an IP address in its usual form; raises `BadOption`."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise BadOption(
            f"--proxy-address {text!r}: use the IP address of the proxy, such as 10.0.0.7"
        ) from None
