"""The simulated world: one process in which many clients run by turns, by a seed's choice.

Each client is a thread, but only one of them runs at a time: it has the baton, and gives it back at
seams. Seams are the beginnings and ends of catalog transactions, operations of the storage, crash
points and sleeps. Time is simulated: the database's clock, the machine's stopwatch and the times of
files. At a seam a client can lose the baton, be killed, or meet a fault of the database or of the
storage. Everything that is left to chance is drawn from one generator, so a seed is a history.
"""

from __future__ import annotations

import errno
import random
import sqlite3
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from queue_core import Store
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.databases import sqlite, touches
from queue_core.catalog.identity import clock
from queue_core.catalog.poller import Poller
from queue_core.consumers.presence import Heartbeat
from queue_core.errors import Conflict, IgnisError
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.address import Address
from tests.storages import copy_catalog, put_catalog_back

#: When each history begins, in microseconds since 1970.
EPOCH = 1_800_000_000_000_000
_SECOND = 1_000_000
#: Seconds that a client may compute without reaching a seam.
PATIENCE = 60.0


class Killed(BaseException):
    """Ends a client where it stands; nothing that it does afterwards has an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How often the chance of a history interferes, as probabilities per seam."""

    switch: float = 0.3
    kill: float = 0.0
    #: The database refuses a commit, and ignis tries it again.
    busy: float = 0.0
    #: The outcome of a commit is unknown: it may have happened.
    unknown: float = 0.0
    #: The storage refuses an operation.
    storage: float = 0.0


class Client:
    """A client with its own process, which lives and dies in turns."""

    def __init__(self, world: World, name: str, work: Callable[[Client], object]) -> None:
        self.name = name
        self.world = world
        self._work = work
        self._resume = threading.Semaphore(0)
        self._stores: dict[str, Store] = {}
        self.beats: list[Heartbeat] = []
        #: Stopwatch at which it wants to go on; a frozen process goes on no earlier than `frozen`.
        self.wakes_at = 0
        self.frozen_until = 0
        self.doomed = self.dead = self.ended = False
        #: The era of the world in which it fired last.
        self.era = 0
        self.error: BaseException | None = None
        #: Open transactions; while one writes, nobody else could.
        self.transactions = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Client {self.name}>"

    @property
    def frozen(self) -> bool:
        """Whether its process is stopped for now."""
        return self.world.watch < self.frozen_until

    def store(self, folder: str = "near") -> Store:
        """Return a store, opened once in each process."""
        if folder not in self._stores:
            self._stores[folder] = Store(self.world.address(folder), create=False)
        return self._stores[folder]

    def forget_stores(self) -> None:
        """Open them again when they are needed."""
        self._stores.clear()

    def go(self) -> None:
        """Hand it the baton, and wait until it gives it back."""
        self._resume.release()
        if not self.world.baton.acquire(timeout=PATIENCE):
            raise TimeoutError(f"{self.name} does not give the baton back")

    def give_back(self) -> None:
        """Let another client run; raise `Killed` if this one is to die here."""
        self.world.baton.release()
        self._resume.acquire()

    def _run(self) -> None:
        self._resume.acquire()
        _MINE.client = self
        try:
            if not self.doomed:
                self._work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the world reports it
            self.error = error
        self.ended = True
        self.world.baton.release()


_MINE = threading.local()


def current() -> Client | None:
    """Return the client whose thread this is."""
    return getattr(_MINE, "client", None)


class World:
    """Time, chance, the files of all stores, and the clients."""

    def __init__(self, seed: int, odds: Odds, folder: Path) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.odds = odds
        self.folder = folder
        self.baton = threading.Semaphore(0)
        self.clients: list[Client] = []
        #: Microseconds: of time that passed, and by which the database's clock is wrong.
        self.watch = 0
        self.error = 0
        self.calm = False
        self.trace: list[str] = []
        self.file_times: dict[str, int] = {}
        #: How often each catalog was put back: file systems number new files as they like.
        self.restores: Counter[Path] = Counter()
        #: How often a person has given something to a reader of a log, and what looks at seams.
        self.era = 0
        self.looks: Callable[[str], object] = bool
        self._engines: dict[str, Engine] = {}

    def address(self, folder: str) -> Address:
        """Return where a store is."""
        return Address.of(self.folder / folder)

    @property
    def now(self) -> int:
        """The time by the database's clock, in microseconds."""
        return EPOCH + self.watch + self.error

    def note(self, text: str) -> None:
        """Write a line of the history."""
        client = current()
        who = client.name if client is not None else "-"
        self.trace.append(f"{self.watch / _SECOND:10.3f} {who:<10} {text}")

    def spawn(self, name: str, work: Callable[[Client], object]) -> Client:
        """Start a client; it runs when it is chosen."""
        client = Client(self, name, work)
        client.wakes_at = self.watch
        self.clients.append(client)
        return client

    def alive(self) -> list[Client]:
        """Return the clients that have not ended."""
        self.clients = [client for client in self.clients if not client.ended]
        return self.clients

    def step(self) -> bool:
        """Let one client run up to its next seam; False if there is none."""
        clients = self.alive()
        if not clients:
            return False
        awake = [c for c in clients if max(c.wakes_at, c.frozen_until) <= self.watch]
        if not awake:
            self.pass_time(min(max(c.wakes_at, c.frozen_until) for c in clients) - self.watch)
            return True
        self.watch += self.random.randrange(1_000, 5_000)
        client = self.random.choice(awake)
        client.go()
        if client.error is not None:
            raise client.error
        return True

    def kill(self, client: Client) -> None:
        """Kill a client between two of its steps."""
        self.note(f"kill {client.name}")
        client.doomed = True
        while not client.ended:
            client.go()
        if client.error is not None:
            raise client.error

    def pass_time(self, micros: int) -> None:
        """Let time pass; the processes that run send their heartbeats meanwhile."""
        self.watch += max(micros, 0)
        if micros < 5 * _SECOND:
            return
        for client in self.alive():
            if not client.frozen:
                for heart in client.beats:
                    self._beat(heart)

    def _beat(self, heart: Heartbeat) -> None:
        if heart._loop._is_ending or heart._fenced is not None:
            return
        try:
            heart.announce()
        except Conflict as error:
            heart._fenced = error
        except IgnisError:
            pass

    def close(self) -> None:
        """End all clients."""
        self.calm = True
        for client in self.alive():
            client.doomed = True
            while not client.ended:
                client.go()

    # Seams

    def seam(self, what: str, *, sleep: float = 0.0) -> None:
        """Let chance decide whether this client continues, waits or dies here."""
        client = current()
        if client is None or client.world is not self:
            return
        if client.dead:
            raise Killed(what)
        self.looks(what)
        if not client.doomed and not self.calm and self.random.random() < self.odds.kill:
            self.note(f"dies at {what}")
            client.doomed = True
        if not client.doomed and not client.transactions:
            yields = not self.calm and self.random.random() < self.odds.switch
            switches = sleep > 0 or client.frozen or yields
            if switches:
                client.wakes_at = self.watch + int(sleep * _SECOND)
                client.give_back()
        if client.doomed:
            client.dead = True
            raise Killed(what)

    def chance(self, probability: float) -> bool:
        """Return whether a fault happens to the client that runs."""
        if self.calm or current() is None or not probability:
            return False
        return self.random.random() < probability


@contextmanager
def running(world: World) -> Iterator[None]:
    """Put the product into a simulated world while the block runs."""
    with ExitStack() as stack:
        for target, name, replacement in _replacements(world):
            stack.enter_context(mock.patch.object(target, name, replacement))
        # Its defaults were bound when the module was imported.
        defaults = {"clock": time.monotonic, "sleep": time.sleep}
        stack.enter_context(mock.patch.dict(Poller.__init__.__kwdefaults__, defaults))
        try:
            yield
        finally:
            world.close()


def _replacements(world: World) -> list[tuple[Any, str, Any]]:
    transaction, mapped = Catalog._transaction, Storage._mapped
    list_files, new_location = Storage.list, Storage.new_location
    monotonic, sleep = time.monotonic, time.sleep

    @contextmanager
    def in_transaction(self: Catalog, *, write: bool, **how: Any) -> Iterator[Any]:
        world.seam("begin")
        client = current()
        if client is None:
            with transaction(self, write=write, **how) as connection:
                yield connection
            return
        client.transactions += 1
        happened = True
        try:
            with transaction(self, write=write, **how) as connection:
                yield connection
                if write and world.chance(world.odds.busy):
                    raise _refusal(sqlite3.SQLITE_BUSY)
                if write and world.chance(world.odds.unknown):
                    happened = world.random.random() < 0.5
                    if not happened:
                        world.note("a commit is lost")
                        raise _refusal(sqlite3.SQLITE_IOERR_FSYNC)
                    connection.commit()
                    world.note("a commit happened, and fails")
                    raise _refusal(sqlite3.SQLITE_IOERR_FSYNC)
        finally:
            client.transactions -= 1
        world.seam("committed")

    @contextmanager
    def in_storage(self: Storage, location: str) -> Iterator[None]:
        world.seam("storage")
        with mapped(self, location):
            if world.chance(world.odds.storage):
                world.note(f"the storage refuses {location}")
                raise OSError(errno.EIO, "simulated")
            yield

    def listed(self: Storage) -> dict[str, int]:
        return {at: world.file_times.get(at, EPOCH) for at in sorted(list_files(self))}

    def located(self: Storage, queue: str) -> str:
        at = new_location(self, queue)
        world.file_times[at] = world.now
        return at

    def rests(seconds: float) -> None:
        if current() is None:
            sleep(seconds)
        else:
            world.seam("sleep", sleep=max(seconds, 0.001))

    def unwatched(_path: str) -> int:
        raise OSError("nothing wakes the clients of a simulation")

    def watch() -> float:
        return monotonic() if current() is None else world.watch / _SECOND

    def starts(self: Heartbeat) -> None:
        client = current()
        if client is not None:
            client.beats.append(self)

    return [
        (Catalog, "_transaction", in_transaction),
        (Catalog, "close", lambda self, **_: None),
        (Catalog, "_inode", lambda self: world.restores[self.file] if self.file.exists() else -1),
        (Storage, "_mapped", in_storage),
        (Storage, "list", listed),
        (Storage, "new_location", located),
        (time, "sleep", rests),
        (time, "monotonic", watch),
        (sqlite, "GLANCE_SECONDS", 0.5),
        (touches, "_watch", unwatched),
        (clock, "stopwatch", lambda: 10**9 + world.watch),
        (dialect, "connect", lambda url, *_: _engine(url)),
        (faults, "point", world.seam),
        (Heartbeat, "start", starts),
        (uuid, "uuid4", lambda: uuid.UUID(int=world.random.getrandbits(128), version=4)),
        (random, "Random", lambda *_: world.random),
        (random, "randrange", world.random.randrange),
        (random, "uniform", world.random.uniform),
        (_Clock, "world", world),
    ]


def _refusal(code: int) -> OperationalError:
    error = sqlite3.OperationalError("simulated")
    error.sqlite_errorcode = code
    return OperationalError("COMMIT", None, error)


class _Clock:
    """The world whose time the database shows."""

    world: World | None = None

    @staticmethod
    def julianday(_: str) -> float:
        """Return days, as SQLite's function does; half a millisecond guards against rounding."""
        assert _Clock.world is not None, "nothing runs outside of a world"
        return (_Clock.world.now / 1000 + 0.5) / 86_400_000 + 2440587.5


_connect = dialect.connect


@lru_cache(maxsize=64)
def _engine(url: str) -> Engine:
    """Return one engine for each catalog of this process: its statements are compiled once."""
    engine = _connect(url)

    def prepare(connection: Any, _: Any) -> None:
        connection.create_function("julianday", 1, _Clock.julianday)

    event.listen(engine, "connect", prepare)
    return engine


# The files of a world


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder in memory, if the system has one there."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ignis-simulation-", dir=parent) as made:
        yield Path(made)


def dispose(address: Address) -> None:
    """Close the connections to a catalog."""
    _engine(address.catalog).dispose()


def back_up(address: Address, to: Path) -> None:
    """Copy the present catalog."""
    copy_catalog(_file(address), to)


def put_back(world: World, address: Address, copy: Path) -> None:
    """Put an older copy of a catalog in its place."""
    dispose(address)
    file = _file(address)
    put_catalog_back(copy, file)
    world.restores[file] += 1


def _file(address: Address) -> Path:
    return Path(address.catalog.removeprefix("sqlite:///"))
