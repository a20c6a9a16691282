"""A store for one test, in a folder that is removed, whose clock can be moved."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from queue_core.catalog.identity import clock
from queue_core.consumers.presence import beat_now
from queue_core.store import Store
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.values.address import Address
from queue_core.values.durations import Duration, check_seconds

_DAY = 86_400
#: The Julian day of the beginning of 1970.
_EPOCH = 2_440_587.5


class TemporaryStore(Store):
    """
    A store on SQLite for one test, made by `temporary_store`, with a clock that tests move.

    It has all methods of `Store`. Other processes, such as Spark's, and other objects that open its
    folder have the real clock.
    """

    def __init__(self, folder: Path) -> None:
        #: How many seconds the clock is ahead.
        self._ahead = 0.0
        super().__init__(Address.of(folder))
        self.catalog.on_connect(self._set_clock)

    def pass_time(self, seconds: Duration) -> None:
        """
        Let time pass at once, and do what is then due.

        Messages whose retry or delay is due return to main. A sweep sidelines messages that were
        fired too long ago and never settled, except those that a pool of this store, or its
        `Queue.get_and_keep`, still holds. Expired messages are removed. Other side tasks are run by
        their own methods, such as `Queue.shovel`.

        Args:
            seconds: How much further the clock of this store is afterwards, 0 or more: seconds, a
                text such as ``"1h"``, or a ``timedelta``.

        Raises:
            BadOption: *seconds* is not a number, 0 or more.
        """
        self._ahead += check_seconds("seconds", seconds)
        # The hearts first: once the new time is believed, sweeps go by it.
        beat_now(self.catalog)
        self.catalog.write(clock.accept)
        Retries(self.catalog, self.storage).run()
        for name in self.queues():
            queue = self.queue(name)
            queue.sweep()
            queue.admin.expire()

    def _set_clock(self, connection: Any, _: object) -> None:
        """Replace the function of SQLite by which the catalog reads its clock."""
        connection.create_function("julianday", 1, self._julian_day)

    def _julian_day(self, moment: str) -> float:
        assert moment == "now", "the catalog asks for the present time alone"
        return (time.time_ns() / 1e9 + self._ahead) / _DAY + _EPOCH


@contextmanager
def temporary_store() -> Iterator[TemporaryStore]:
    """
    Make an empty store in a temporary folder, and remove it at the end of the ``with`` statement.

    Yields:
        The open store.

    Raises:
        StorageUnavailable: The folder for temporary files cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="ignis-test-") as folder:
        store = TemporaryStore(Path(folder))
        with store:
            yield store
