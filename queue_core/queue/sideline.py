"""`Sideline`: the sideline of a queue, opened by the name ``{queue}_SIDELINE``."""

from __future__ import annotations

from typing import Any, NoReturn

from queue_core.queue.queue import Queue
from queue_core.support.interruption import shielded
from queue_core.values.model import Magazine
from queue_core.values.names import SIDELINE_SUFFIX


@shielded
class Sideline(Queue):
    """A queue of which only the sideline is opened. Source: IgnisMQ, the name of the magazine."""

    _only = Magazine.SIDELINE

    def __repr__(self) -> str:
        return f"<Sideline {self.name + SIDELINE_SUFFIX!r}, of {self._store!r}>"

    @property
    def admin(self) -> NoReturn:
        """Raise `BadOption`, as all that concerns the whole queue."""
        self.opened.refuse("admin")

    def request(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `BadOption`: messages are loaded into the whole queue."""
        self.opened.refuse("request")

    def get_and_keep(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `BadOption`: messages of main are kept."""
        self.opened.refuse("get_and_keep")

    def reset(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `BadOption`: kept messages of both magazines are put back."""
        self.opened.refuse("reset")

    def sweep(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `BadOption`: a sweep moves messages from main."""
        self.opened.refuse("sweep")

    def replay(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `BadOption`: the log is of the whole queue."""
        self.opened.refuse("replay")

    def clone(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `BadOption`: a clone has both magazines."""
        self.opened.refuse("clone")
