"""Connections that callers lend to SQLAlchemy, which cannot end their transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queue_core.errors import Conflict


class TransactionFailed(Conflict):
    """A statement of the caller's transaction has failed, and the database ends it."""


class LentConnection:
    """
    A driver's connection that belongs to the caller.

    Only the caller commits, rolls back and closes it, so these methods do nothing here. *cursor*
    makes cursors whose rows are tuples, whatever the caller has chosen for its own.
    """

    def __init__(self, driver: Any, cursor: Callable[[], Any]) -> None:
        self._driver = driver
        self.cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def commit(self) -> None:
        """Do nothing."""

    def rollback(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
