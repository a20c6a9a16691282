"""The file of logins, followed: each request sees the logins that the file has now."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from ignis_console import passwords
from ignis_console.passwords import Login
from queue_core.errors import BadOption

_log = logging.getLogger(__name__)


class LoginsUnreadable(Exception):
    """The file of logins cannot be read now, so nobody of it is let in."""


class UsersFile:
    """
    Reads the file at each request, and parses it when its bytes are others.

    A file that is missing or damaged lets nobody in until it can be read again: former logins
    could be those that a person is about to remove.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises `BadOption`, which names the line at fault."""
        self._path = path
        self._lock = threading.Lock()
        self._data = passwords.read_bytes(path)
        self._logins: Mapping[str, Login] | None = passwords.parse(self._data, path)

    def logins(self) -> Mapping[str, Login]:
        """Return the present logins by their names; raises `LoginsUnreadable`."""
        with self._lock:
            try:
                data = passwords.read_bytes(self._path)
                if self._logins is None or data != self._data:
                    found = passwords.parse(data, self._path)
                    _log.warning("the file of logins was read again: %d logins", len(found))
                    self._data, self._logins = data, found
            except BadOption as error:
                if self._logins is not None:
                    _log.error("nobody can log in until the file of logins is mended: %s", error)
                self._logins = None
                raise LoginsUnreadable(str(error)) from error
            return self._logins
