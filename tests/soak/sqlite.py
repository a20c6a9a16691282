"""Faults of an embedded catalog, and of clocks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from queue_core import Store
from queue_core.errors import IgnisError
from queue_core.values.address import Address
from tests.clocks import jump
from tests.soak.cast import Cast
from tests.soak.history import History
from tests.soak.nemesis import Fault
from tests.storages import copy_catalog, put_catalog_back
from tests.waiting import until

#: Seconds after which a copy is replaced by a newer one. Vacuum's grace must be longer, or files
#: that the copy names are gone.
AGE = 25.0


class Restore(Fault):
    """
    An older copy of the catalog's file is put back, while every process is dead.

    It is taken by SQLite's own means while the store is in use, as a backup would be. *look* is
    held by the thread of this process that uses the store: a connection that outlives the
    replacement would write its own pages into the new file.
    """

    name, weight, alone = "restore", 0.4, True

    def __init__(
        self,
        address: Address,
        cast: Cast,
        history: History,
        look: threading.Lock,
        kill_others: Callable[[], None] = lambda: None,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._address = address
        self._file = Path(address.catalog.removeprefix("sqlite:///"))
        self._copy = self._file.with_name("catalog-copy")
        self._cast = cast
        self._history = history
        self._look = look
        self._kill_others = kill_others
        self._may_begin = may_begin
        self._copied = 0.0

    def possible(self) -> bool:
        return self._copied > 0.0 and self._may_begin()

    def begin(self) -> str | None:
        begun = time.monotonic()
        self._kill_others()
        self._cast.kill_all()
        with self._look:
            # A child of a process that was killed dies a moment later.
            until(lambda: not _users(self._file), "the catalog is in use while it is replaced")
            put_catalog_back(self._copy, self._file)
            Store(self._address, create=False, adopt=True).close()
        self._history.write("restored", copied=self._copied, begun=begun)
        self._cast.start()
        self.forget_copy()
        return None

    def forget_copy(self) -> None:
        """Never put the copy back that is there."""
        self._copied = 0.0

    def keep_copy(self) -> None:
        """Take a copy now and then, between the faults."""
        if time.monotonic() - self._copied < AGE or not self._file.exists():
            return
        copied = time.monotonic()
        self._copy.unlink(missing_ok=True)
        copy_catalog(self._file, self._copy)
        self._copied = copied


class Clock(Fault):
    """
    The catalog's clock goes some days ahead or back, and is set right again.

    What happened while it was back looks days old afterwards, once a person has accepted the clock:
    vacuum removes files at once that were let go then. *after* is called, since an older copy of
    the catalog may need them.
    """

    weight, seconds, alone = 0.2, (0.5, 3.0), True

    def __init__(
        self, address: Address, days: float, after: Callable[[], None] = lambda: None
    ) -> None:
        self.name = "clock ahead" if days > 0 else "clock back"
        self.after = after
        self._address = address
        self._wrong_by = days
        #: How far the clock is wrong now.
        self.days = 0.0

    def begin(self) -> str | None:
        self._jump(self._wrong_by)
        return None

    def heal(self) -> None:
        while self.days:
            self._jump(-self.days)
        if self._wrong_by < 0:
            self.after()

    def _jump(self, days: float) -> None:
        try:
            with Store(self._address, create=False) as store:
                jump(store, days)
                if self.days < 0:
                    # From back there, the right time is a jump ahead that a person has to accept.
                    store.admin.accept_clock()
            self.days += days
        except IgnisError:
            # The database is away: another time.
            time.sleep(0.2)


def _users(file: Path) -> list[str]:
    """Return the processes that have a file open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(_leads_to(link, file) for link in (process / "fd").iterdir()):
                found.append(process.name)
    return found


def _leads_to(link: Path, file: Path) -> bool:
    try:
        return link.readlink() == file
    except OSError:
        return False


def clocks(address: Address, chance: random.Random) -> list[Clock]:
    return [Clock(address, chance.choice((1.0, 3.0))), Clock(address, -1.0)]
