"""Who asks, and what they may do: sessions, the key, Basic for scripts, and a proxy's header."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ignis_console import passwords
from ignis_console.config import ConsoleOptions
from ignis_console.passwords import Login, Role
from ignis_console.rendering import ROOT
from ignis_console.shared import Remembered
from queue_core.errors import BadOption

_log = logging.getLogger(__name__)

#: Seconds after which a session ends.
SESSION_SECONDS = 12 * 3600.0
#: The most sessions, and the most remembered logins of scripts.
MOST_SESSIONS = 1000
#: Failed logins of one address within a minute, after which further ones are refused.
MOST_FAILURES = 10
#: The name of the login by the key.
KEY_NAME = "console"
#: The name of whoever has the token for the metrics.
METRICS_NAME = "metrics"


class Visitor(NamedTuple):
    """Who asks."""

    name: str
    role: Role
    #: The token that each form must bring; None: the request proves itself, as with Basic.
    csrf: str | None

    @property
    def may_operate(self) -> bool:
        """Whether it may change anything."""
        return self.role is Role.OPERATE


class _UsersFile:
    """
    The file of logins, read at each request, and parsed when its bytes differ.

    A file that is missing or damaged lets nobody in until it can be read again: former logins
    could be those that a person is about to remove.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises `BadOption`, which names the line at fault."""
        self._path = path
        self._lock = threading.Lock()
        self._data: bytes | None = passwords.read_bytes(path)
        self._logins = passwords.parse(self._data, path)

    def logins(self) -> Mapping[str, Login]:
        """Return the present logins by their names; raises `HTTPException`."""
        with self._lock:
            try:
                data = passwords.read_bytes(self._path)
                if data != self._data:
                    self._logins = passwords.parse(data, self._path)
                    _log.warning("the file of logins was read again: %d logins", len(self._logins))
                    self._data = data
            except BadOption as error:
                if self._data is not None:
                    _log.error("nobody can log in until the file of logins is corrected: %s", error)
                self._data = None
                unreadable = "the file of logins cannot be read; the log of the console says why"
                raise HTTPException(503, unreadable) from error
            return self._logins


class Auth:
    """Logins and sessions, kept in memory: they end with the process."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        token = options.metrics_token
        self._metrics_token = None if token is None else passwords.read_token(token)
        self._users = _UsersFile(options.users) if options.users else None
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        #: One hash at a time: each needs 32 MB.
        self._hashing = threading.Lock()
        self._sessions: Remembered[tuple[Login, float]] = Remembered(MOST_SESSIONS)
        self._scripts: Remembered[Login] = Remembered(MOST_SESSIONS)
        self._failures: Remembered[deque[float]] = Remembered(MOST_SESSIONS)
        needs_key = options.users is None and options.proxy_header is None
        #: The key that logs in if there are no logins.
        self.key = secrets.token_urlsafe(24) if needs_key else None

    def cookie(self, request: Request) -> str:
        """
        Return the name of the cookie, which contains the path and the port of the console's URL.

        A browser sends the cookies of a host to all of its ports, and those of a path to all paths
        below it. With one name, a login at one console would end the other. With TLS, no other
        host and no plain connection can set it, unless the console is under a path of its own.
        """
        port = request.headers.get("host", "").rpartition(":")[2]
        name = f"ignis{ROOT.get().replace('/', '-')}"
        if self.is_secure(request):
            name = f"__Secure-{name}" if ROOT.get() else f"__Host-{name}"
        return f"{name}-{port}" if port.isdecimal() else name

    def is_secure(self, request: Request) -> bool:
        """Return whether the browser speaks TLS, as far as the console or its proxy knows."""
        # Visitors who forge the header only get a cookie that their own browser does not send back.
        by_proxy = request.headers.get("x-forwarded-proto", "").lower() == "https"
        return self._options.has_tls or self._options.secure_cookie or by_proxy

    @property
    def by_proxy(self) -> bool:
        """Whether a proxy names the login."""
        return self._options.proxy_header is not None

    def identify(self, request: Request, *, by_token: bool = False) -> Visitor | None:
        """
        Return who asks, or None; raises `HTTPException`.

        It raises after too many failed logins, and while the file of logins cannot be read. With
        *by_token*, the token for the metrics is as good as a login that may look.
        """
        found = self._found(request, by_token=by_token)
        return found._replace(role=Role.LOOK) if found and self._options.look_only else found

    def _found(self, request: Request, *, by_token: bool) -> Visitor | None:
        header = request.headers.get("authorization", "")
        if by_token and header[:7].lower() == "bearer ":
            return self._of_token(header[7:].strip(), address_of(request))
        if self.by_proxy:
            return self._of_proxy(request)
        token = request.cookies.get(self.cookie(request))
        if token:
            return self._of_session(token)
        if header[:6].lower() == "basic ":
            return self._of_script(header, address_of(request))
        return None

    def log_in(self, name: str, password: str, address: str) -> str | None:
        """Return the token of a new session, or None; raises as `identify`."""
        login = self._verified(name, password, address)
        if login is None:
            return None
        token = secrets.token_urlsafe(32)
        self._sessions.put(_digest(token), (login, time.monotonic() + SESSION_SECONDS))
        return token

    def log_out(self, token: str) -> None:
        """End a session."""
        self._sessions.forget(_digest(token))

    def _verified(self, name: str, password: str, address: str) -> Login | None:
        self._check_failures(address)
        login: Login | None = None
        if self.key is not None:
            right = hmac.compare_digest(password.encode(), self.key.encode())
            login = Login(KEY_NAME, Role.OPERATE, "") if right else None
        elif self._users is not None:
            logins = self._users.logins()
            with self._hashing:
                login = passwords.verify(logins, name, password[:1024])
        if login is None:
            self._note_failure(address)
        return login

    def _note_failure(self, address: str) -> None:
        _log.warning("a login from %s failed", address, extra={"address": address})
        with self._lock:
            failed = self._failures.get(address) or deque()
            self._failures.put(address, deque([*failed, time.monotonic()], MOST_FAILURES))

    def _check_failures(self, address: str) -> None:
        failed = self._failures.get(address)
        if failed and len(failed) == MOST_FAILURES and time.monotonic() - failed[0] < 60:
            raise HTTPException(429, "too many failed logins; wait a minute")

    def _of_session(self, token: str) -> Visitor | None:
        session, ends = self._sessions.get(_digest(token)) or (None, 0.0)
        if session is None or time.monotonic() > ends:
            self.log_out(token)
            return None
        login = self._present(session)
        if login is None:
            return None
        return Visitor(login.name, login.role, self._csrf(token))

    def _of_script(self, header: str, address: str) -> Visitor | None:
        # For remembered logins too: otherwise the answer would reveal a correct guess.
        self._check_failures(address)
        mark = hmac.digest(self._secret, header.encode(), "sha256")
        login = self._scripts.get(mark)
        login = login and self._present(login)
        if login is None:
            try:
                text = base64.b64decode(header[6:], validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                return None
            name, _, password = text.partition(":")
            login = self._verified(name, password, address)
            if login is None:
                return None
            self._scripts.put(mark, login)
        return Visitor(login.name, login.role, None)

    def _present(self, login: Login) -> Login | None:
        """Return a login as the file has it now; None if it is gone or has another password."""
        if self._users is None:
            return login
        found = self._users.logins().get(login.name)
        return found if found is not None and found.hash == login.hash else None

    def _of_token(self, token: str, address: str) -> Visitor | None:
        self._check_failures(address)
        wanted = self._metrics_token
        if wanted is None or not hmac.compare_digest(token.encode(), wanted.encode()):
            self._note_failure(address)
            return None
        return Visitor(METRICS_NAME, Role.LOOK, None)

    def _of_proxy(self, request: Request) -> Visitor | None:
        if address_of(request) not in self._options.trusted_addresses:
            return None
        named = request.headers.getlist(self._options.proxy_header or "")
        if len(named) != 1 or not named[0].strip() or len(named[0]) > 200:
            return None
        name = named[0].strip()
        role = Role.OPERATE if name in self._options.proxy_operators else Role.LOOK
        return Visitor(name, role, self._csrf(f"proxy:{name}"))

    def _csrf(self, of: str) -> str:
        return hmac.new(self._secret, of.encode(), "sha256").hexdigest()


def address_of(request: Request) -> str:
    """Return the address of the machine that sends a request."""
    return request.client.host if request.client else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
