"""A seed's history: which stores, queues, clients and faults there are, and what must come of it.

Producers load the queue ``a``; a streaming query copies it to the queue ``b``, in the same store or
in another one; handlers, or a query that settles, finish the messages of ``b``. Somebody runs the
side tasks. A nemesis kills and freezes clients, passes time, sets clocks, and puts catalogs and
checkpoints back. In the end everybody runs without faults until the queue ``a`` is empty, and the
referee judges what the clients have written down.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import delete

from queue_core import Limit, Queue, Store, errors
from queue_core.catalog.identity import clock
from queue_core.catalog.records.publications import newest_ticket
from queue_core.catalog.tables import clocks
from queue_core.segments import reader, stager
from queue_core.segments.lru_cache import LruCache
from queue_core.selection import scan
from queue_core.upkeep.tasks.purge import purge
from queue_core.values.model import HandlingConsumer
from queue_core.values.names import is_of_query
from queue_core.values.settings import ROOMS
from queue_core.verbs.lose import start_again
from tests.books import audit
from tests.factories import make_queue, orders
from tests.model import journal
from tests.referee import Entry, Rules, check
from tests.simulation import world as worlds
from tests.simulation.readers import LOGS, Readers, State
from tests.simulation.spark import (
    Checkpoint,
    LoadSink,
    LogTaken,
    Query,
    SettleSink,
    Sink,
    sinks,
)
from tests.simulation.world import Client, Odds, World

SECOND = 1_000_000
#: Seconds after which messages are swept, and the number of rounds that empty a queue.
SWEEP_AFTER = 1200.0
EXPIRY = 30 * 86400.0
ROUNDS = 18


class Violation(AssertionError):
    """A history that must not be; the text names the messages."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The parts of a seed's history."""

    steps: int
    odds: Odds
    shards: int
    key: str | None
    inlined: bool
    far: bool
    policy: str | None
    max_size: int | None
    room: str
    handlers: int
    settles: bool
    most: int
    #: Whether the customers of both queues take turns, and the limits of both.
    fair: bool
    limits: tuple[Limit, ...]
    #: Whether handlers are consumers whose death makes suspects.
    loses: bool
    #: How long the queue ``a`` keeps a log, which others read.
    log: str | None
    #: Faults of the nemesis.
    restores: bool
    checkpoints: bool
    freezes: bool
    clocks: bool
    #: Time may pass while a query is down, so that its messages are swept.
    late: bool

    @staticmethod
    def of(seed: int) -> Shape:
        """Return the shape of a seed."""
        chance = random.Random(f"shape {seed}")

        def maybe(probability: float) -> bool:
            return chance.random() < probability

        shape = Shape(
            steps=chance.choice([40, 80, 160]),
            odds=Odds(
                switch=chance.choice([0.05, 0.3, 0.7]),
                kill=chance.choice([0.0, 0.005, 0.02]),
                busy=chance.choice([0.0, 0.0, 0.05]),
                unknown=chance.choice([0.0, 0.0, 0.02]),
                storage=chance.choice([0.0, 0.0, 0.01]),
            ),
            shards=chance.choice([1, 1, 2, 3]),
            key=chance.choice([None, None, "customer"]),
            inlined=maybe(0.5),
            far=maybe(0.25),
            policy="latest" if maybe(0.12) else None,
            max_size=chance.choice([None, None, None, 12]),
            # Not from *chance*, whose other choices stay the same.
            room=random.Random(f"room {seed}").choice(ROOMS),
            handlers=chance.choice([0, 1, 2]),
            settles=maybe(0.3),
            most=chance.choice([0, 1, 3, 8]),
            **_rules_of(seed),
            log=None,
            restores=maybe(0.3),
            checkpoints=maybe(0.2),
            freezes=maybe(0.3),
            clocks=maybe(0.2),
            late=maybe(0.3),
        )
        return shape if shape.policy else replace(shape, log=_log_of(seed))


#: Limits of whole queues and of customers; some count by time, so that the clock matters.
_LIMITS = (
    (Limit(in_flight=4), Limit(in_flight=12, per_second=2.0), Limit(per_second=0.5, window=20.0)),
    (Limit(column="customer", in_flight=2), Limit(column="customer", per_second=1.0, window=5.0)),
)


def _rules_of(seed: int) -> dict[str, Any]:
    """
    Return the rules of the queues, from their own chance.

    Many of the first thousand histories have none, and are those that they were before.
    """
    if seed < 1000 and seed % 4 != 1:
        return {"fair": False, "limits": (), "loses": False}
    chance = random.Random(f"rules {seed}")
    limits = tuple(chance.choice(each) for each in _LIMITS if chance.random() < 0.35)
    return {"fair": chance.random() < 0.35, "limits": limits, "loses": chance.random() < 0.5}


def _log_of(seed: int) -> str | None:
    """Return the log of the queue, from its own chance; many of the first histories have none."""
    if seed < 10_000 and seed % 8 != 3:
        return None
    return random.Random(f"log {seed}").choice(LOGS)


@dataclass
class Report:
    """What came of a seed."""

    seed: int
    shape: Shape
    counts: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def run(seed: int, folder: Path, shape: Shape | None = None) -> Report:
    """Run the history of a seed in an empty folder."""
    shape = shape or Shape.of(seed)
    # Before chance is in charge: it is made once in a process.
    _template()
    shutil.rmtree(folder / "run", ignore_errors=True)
    folder = folder / "run"
    folder.mkdir()
    world = World(seed, shape.odds, folder)
    report = Report(seed, shape, trace=world.trace)
    history = _History(world, shape)
    inline = stager.INLINE_BYTES if shape.inlined else 0
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(stager, "INLINE_BYTES", inline))
        # All histories have the same store, of the same time, and none knows of another one.
        stack.enter_context(mock.patch.object(reader, "_cache", reader.ColumnCache()))
        matches: LruCache[Any, Any] = LruCache(1 << 20, lambda match: len(match.seen))
        stack.enter_context(mock.patch.object(scan, "_matches", matches))
        stack.enter_context(sinks())
        stack.enter_context(worlds.running(world))
        if shape.log:
            stack.enter_context(journal.marks())
        try:
            history.run()
        except Violation as violation:
            report.wrong = str(violation).split("\n")
        except BaseException as error:  # noqa: BLE001 - any other error is a failure of the seed
            report.wrong = [f"{type(error).__name__}: {error}"]
            report.trace.append(_traceback(error))
    report.counts = dict(history.counts) | {"steps": history.done}
    return report


class _History:
    """One history."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world, self.shape = world, shape
        self.chance = world.random
        #: For what must be refused, and so changes nothing: all else of a history stays the same.
        self.foreign = random.Random(f"foreign {world.seed}")
        self.target = "far" if shape.far else "near"
        self.entries: list[Entry] = []
        self.counts: Counter[str] = Counter()
        self.done = 0
        self.number = 0
        self.lives = 0
        self.checkpoint: Checkpoint | None = None
        #: Messages of batches that were published, and are not acknowledged yet, with their batch.
        self.risk: dict[str, dict[int, list[int]]] = {}
        #: The last life of each handler.
        self.last_lives: dict[str, str] = {}
        #: Stores, copies of their catalogs, and when these were made.
        self.backups: list[tuple[str, Path, float, State | None]] = []
        self.old_checkpoint: Checkpoint | None = None
        self.calm = False
        self.unknown = 0
        self.readers = Readers(self) if shape.log else None

    @property
    def now(self) -> float:
        """The time in seconds, which differs from that of every entry."""
        return self.world.watch / SECOND + len(self.entries) / SECOND

    def write(self, what: str, life: str = "world", **details: Any) -> float:
        """Write an entry of the history; return its time."""
        at = self.now
        self.entries.append({"what": what, "life": life, "at": at, **details})
        return at

    def begin_settling(self, life: str, numbers: dict[str, list[int]], **details: Any) -> int:
        """Write down which messages a consumer begins to settle, by outcome; return a number."""
        about = {"queue": "b", "delete": [], "reload": [], "sideline": []} | numbers | details
        self.write("settling", life, settle=len(self.entries), **about)
        return len(self.entries) - 1

    def run(self) -> None:
        # Any message that was held for long enough is swept.
        self.write("fault", fault=0, name="time")
        self._make_stores()
        self.checkpoint = Checkpoint.new(self.world.folder / "copier")
        self.settling = Checkpoint.new(self.world.folder / "settler")
        self._keep_alive()
        for number in range(self.shape.steps):
            self.done = number
            self.world.step()
            self._keep_alive()
            if self.chance.random() < 0.08:
                self._fault()
            if self.readers and self.chance.random() < 0.08:
                self.readers.act()
            if self.done == 50:
                self._audit()
        self._settle_down()
        self._check()

    # Clients

    def _keep_alive(self) -> None:
        """Start the processes that do not run."""
        running = {client.name.split("#")[0] for client in self.world.alive()}
        wanted: dict[str, Callable[[Client], object]] = {"copier": self._copies}
        if not self.calm:
            wanted |= {"producer-1": self._produces, "producer-2": self._produces}
            wanted["tasks"] = self._runs_tasks
        for number in range(self.shape.handlers):
            wanted[f"handler-{number}"] = self._handles
        if self.readers and not self.calm:
            wanted |= {"reader-1": self._reads, "reader-2": self._reads}
        if self.readers and self.readers.copies:
            wanted["logger"] = self._logs
        if self.shape.settles:
            wanted["settler"] = self._settles
        for name, work in wanted.items():
            if name not in running:
                self.lives += 1
                self.world.spawn(f"{name}#{self.lives}", work)

    def _copies(self, client: Client) -> None:
        address = self.world.address(self.target)
        log = self.checkpoint
        assert log is not None
        query = log.folder.name
        sink = _Copying(self, LoadSink(address, query, log.folder, "b"))
        run = Query(
            world=self.world,
            address=self.world.address("near"),
            queue="a",
            checkpoint=log,
            sink=sink,
            ack="onCommit",
            most=self.shape.most,
        )
        with self._expected(client):
            try:
                run.run()
            except errors.StaleCheckpoint:
                # A life that stood still may come with a batch that another one has repeated.
                if not client.name.startswith("zombie"):
                    self._put_newest_checkpoint_back()
                raise

    def _settles(self, client: Client) -> None:
        log = self.settling
        query = log.folder.name
        address = self.world.address(self.target)
        inner = SettleSink(address, query, log.folder, "b", log.folder.name, self._decide)
        sink = _Settling(self, inner)
        # Its next life gets the batch again, or a part of it, and others the rest.
        self.write("died", name="settler")
        run = Query(
            world=self.world,
            address=address,
            queue="b",
            checkpoint=log,
            sink=sink,
            ack="settle",
            most=4,
        )
        with self._expected(client):
            run.run()

    def _reads(self, client: Client) -> None:
        assert self.readers is not None
        with self._expected(client):
            self.readers.reads(client)

    def _logs(self, client: Client) -> None:
        assert self.readers is not None
        with self._expected(client):
            self.readers.logs(client)

    def _decide(self, number: int) -> str:
        return "sideline" if number % 11 == 3 else "delete"

    def _produces(self, client: Client) -> None:
        with self._expected(client):
            queue = client.store().queue("a")
            while True:
                self._offer_foreign_bytes(queue)
                count = self.chance.randrange(1, 5)
                first, self.number = self.number, self.number + count
                numbers = list(range(first, first + count))
                load = len(self.entries)
                # With a policy, all messages of a producer are versions of one thing.
                key = client.name.split("#")[0] if self.shape.policy else "any"
                about = {"queue": "a", "store": "near", "first": first, "count": count, "key": key}
                self.write("loading", client.name, load=load, **about)
                timeout = self.chance.choice([0.0, 2.0])
                try:
                    queue.load(self._rows(client, numbers), timeout)
                except errors.QueueFull:
                    self.write("refused", client.name, load=load)
                else:
                    self.write("loaded", client.name, load=load)
                    self.world.note(f"loaded {numbers}")
                self.world.seam("producer rests", sleep=self.chance.choice([0.0, 0.5, 3.0]))

    def _rows(self, client: Client, numbers: list[int]) -> pa.Table:
        rows = orders(len(numbers), numbers[0], customers=3)
        if self.shape.policy is None:
            return rows
        names = pa.array([client.name.split("#")[0]] * len(numbers))
        return rows.set_column(1, "customer", names)

    def _offer_foreign_bytes(self, queue: Queue) -> None:
        """Sometimes load a string that is not valid UTF-8 beside a good one, which is refused."""
        if self.foreign.random() > 0.2:
            return
        texts = pa.array([b"good", b"customer-\xff\xfe"]).view(pa.string())
        try:
            queue.load(orders(2, -2).set_column(1, "customer", texts))
        except errors.Invalid:
            self.counts["foreign, refused"] += 1
        else:
            raise Violation("a string that is not valid UTF-8 was loaded")

    def _handles(self, client: Client) -> None:
        with self._expected(client):
            store = client.store(self.target)
            queue = store.queue("b")
            life = self._start_again(store, client) if self.shape.loses else None
            while True:
                begun = self.now
                firing = queue.fire(self.chance.randrange(1, 6), consumer=life)
                numbers = firing.messages.column("number").to_pylist()
                if not numbers:
                    self.world.seam("handler idle", sleep=1.5)
                    continue
                self.world.note(f"handles {numbers}")
                self.delivered(client.name, numbers, firing.ids.to_pylist(), begun)
                self.world.seam("handler works", sleep=self.chance.choice([0.0, 0.2, 5.0]))
                outcome = self.chance.choice(["delete"] * 7 + ["reload", "sideline", "forget"])
                if self.calm:
                    outcome = "delete"
                if outcome == "forget":
                    continue
                # Others may get them before the verb returns.
                settle = self.begin_settling(client.name, {outcome: numbers})
                held = getattr(queue, outcome)(firing)
                self.write("settled", client.name, settle=settle, held=held)

    def delivered(
        self, life: str, numbers: list[int], ids: list[int], begun: float, queue: str = "b"
    ) -> float:
        """Write down that a consumer was handed messages, whose firing began at a time."""
        about = {"numbers": numbers, "messages": ids, "attempts": [0] * len(ids), "keys": 1}
        return self.write("delivered", life, queue=queue, begun=begun, **about)

    def _start_again(self, store: Store, client: Client) -> HandlingConsumer:
        """Start a life of a handler; others may get what the last one held before this returns."""
        name = client.name.split("#")[0]
        if name in self.last_lives:
            self.write("died", name=self.last_lives[name])
        self.last_lives[name] = client.name
        return start_again(store.catalog, name)

    def _runs_tasks(self, client: Client) -> None:
        with self._expected(client):
            folders = sorted({"near", self.target})
            while True:
                folder = self.chance.choice(folders)
                store = client.store(folder)
                queue = store.queue(self.chance.choice(store.queues()))
                task = self.chance.choice(
                    ["sweep", "shovel", "recover", "expire", "compact", "vacuum", "purge", "shovel"]
                    + ["trim", "trim"] * bool(self.readers)
                )
                if task == "vacuum":
                    # A backup needs the files that it names.
                    grace = 7 * 86400.0 if self.shape.restores else self.chance.choice([0.0, 60.0])
                    moved: object = store.admin.vacuum(grace=grace)
                elif task == "recover":
                    moved = store.admin.recover()
                elif task == "purge":
                    moved = purge(store.catalog)
                elif task in ("expire", "compact", "trim"):
                    moved = getattr(queue.admin, task)()
                else:
                    moved = getattr(queue, task)()
                self.world.note(f"{task} {queue.name}: {moved}")
                self.world.seam("tasks rest", sleep=self.chance.choice([0.1, 1.0, 10.0]))

    @contextmanager
    def _expected(self, client: Client) -> Iterator[None]:
        """End a client's life with an error that its faults explain; it is started again."""
        try:
            yield
        except (errors.CatalogUnavailable, errors.StorageUnavailable) as error:
            self._check_explained(error)
        except (errors.ConsumerFenced, LogTaken) as error:
            self.world.note(f"ends: {error}")
        except errors.NoSuchQueue as error:
            # A reader of a log was dropped.
            if self.readers is None:
                raise
            self.world.note(f"ends: {error}")
        except errors.StaleCheckpoint as error:
            if not self.shape.checkpoints and not client.name.startswith("zombie"):
                raise
            self.world.note(f"ends: {error}")
        except (errors.QueueFull, errors.PublicationRefused, errors.Conflict) as error:
            self.world.note(f"ends: {error}")
        except (errors.DamagedSegment, errors.BadOption, errors.BadOutcome) as error:
            # A restored catalog does not know what was handed out since its backup.
            if not self.shape.restores:
                raise
            self.world.note(f"ends: {error}")

    def _check_explained(self, error: errors.IgnisError) -> None:
        odds = self.shape.odds
        explained = odds.unknown or odds.storage or odds.busy
        if not (explained or self.shape.clocks or self.shape.restores):
            raise error
        self.world.note(f"ends: {error}")

    # Faults

    def _fault(self) -> None:
        faults = [self._kill, self._pass_time]
        if self.shape.freezes:
            faults.append(self._freeze)
        if self.shape.restores:
            faults += [self._back_up, self._back_up, self._restore]
        if self.shape.checkpoints:
            faults += [self._copy_checkpoint, self._checkpoint_goes_back]
        if self.shape.clocks:
            faults.append(self._set_clock)
        self.chance.choice(faults)()

    def _kill(self) -> None:
        if self.shape.odds.kill:
            clients = [client for client in self.world.alive() if not client.frozen]
            if clients:
                self.world.kill(self.chance.choice(clients))
                self._maybe_rest()

    def _maybe_rest(self) -> None:
        if self.shape.late and self.chance.random() < 0.3:
            self._let_pass(self.chance.choice([90, 1500]))

    def _pass_time(self) -> None:
        longest = [1, 20, 90, 1500]
        if not self.shape.late and not self._beats():
            # The messages of a query that is not at work must not be swept.
            longest = [1, 20]
        self._let_pass(self.chance.choice(longest))

    def _beats(self) -> bool:
        """Return whether every query is at work, and keeps its messages from being swept."""
        queries = [c for c in self.world.alive() if c.name.startswith(("copier", "settler"))]
        return all(client.beats and not client.frozen for client in queries)

    def _let_pass(self, seconds: int) -> None:
        self.world.note(f"{seconds} seconds pass")
        down = [client for client in self.world.alive() if client.frozen]
        names = {client.name.split("#")[0] for client in self.world.alive()}
        gone = {client.name.split("#")[0] for client in down} | ({"copier", "settler"} - names)
        if self.shape.late:
            for name in sorted(gone):
                for numbers in self.risk.get(name, {}).values():
                    self.write("excused", numbers=numbers, why="swept")
        self.world.pass_time(seconds * SECOND)

    def _freeze(self) -> None:
        clients = [client for client in self.world.alive() if not client.frozen]
        client = self.chance.choice(clients)
        seconds = self.chance.choice([5, 40, 100, 2000] if self.shape.late else [5, 30])
        self.world.note(f"{client.name} is frozen for {seconds} seconds")
        client.frozen_until = self.world.watch + seconds * SECOND
        if client.name.startswith("copier") and self.shape.late:
            for numbers in self.risk.get("copier", {}).values():
                self.write("excused", numbers=numbers, why="frozen")
        if client.name.startswith("copier") and self.chance.random() < 0.5:
            # A person starts the query again elsewhere; the first life goes on later.
            client.name = f"zombie#{self.lives}"

    def _back_up(self) -> None:
        if not any(entry["what"] == "copied" for entry in self.entries):
            # Until then a catalog does not know that a query reads from it and writes to it.
            return
        folder = self.chance.choice(sorted({"near", self.target}))
        at = self.world.folder / f"{folder}-{len(self.backups)}.db"
        worlds.back_up(self.world.address(folder), at)
        state = self.readers.state.copy() if self.readers else None
        self.backups.append((folder, at, self.now, state))
        self.world.note(f"backup of {folder}")

    def _restore(self) -> None:
        if not self.backups:
            return
        folder, copy, copied, state = self.backups[self.chance.randrange(-3, 0) % len(self.backups)]
        self.world.note(f"restore of {folder}, as it was at {copied:.3f}")
        begun = self.now
        address = self.world.address(folder)
        if self.readers:
            self.readers.look()
        worlds.put_back(self.world, address, copy)
        self.write("restored", store=folder, copied=copied, begun=begun)
        self.counts["restores"] += 1
        store = Store(address, create=False, adopt=True)
        if self.readers and state is not None and folder == "near":
            self.readers.rewind(state)
        if folder == "near" != self.target:
            self._excuse_doubted(store)
        self.backups = [backup for backup in self.backups if backup[2] <= copied]
        self._audit()

    def _excuse_doubted(self, store: Store) -> None:
        """
        Excuse what a restored source cannot know to be published: its sink is in another store.

        These messages come again if their query has acknowledged nothing yet, or has a chosen name.
        """
        doubted = any(
            row["in_flight"] and (not row["acknowledged"] or not is_of_query(row["consumer"]))
            for row in store.view("consumers").to_pylist()
        )
        if doubted:
            rows = store.queue("a").browse()
            fired = rows.filter(pc.is_valid(rows.column("_fired_at")))
            numbers = fired.column("number").to_pylist()
            self.write("excused", numbers=numbers, why="doubted after a restore")

    def _copy_checkpoint(self) -> None:
        assert self.checkpoint is not None
        self.old_checkpoint = self.checkpoint.copy_to(self.world.folder / "old")

    def _checkpoint_goes_back(self) -> None:
        """The query's folder is put back; its newest copy is kept beside."""
        if self.old_checkpoint is None or (self.world.folder / "newest").exists():
            return
        assert self.checkpoint is not None
        for client in self.world.alive():
            if client.name.startswith(("copier", "zombie")):
                self.world.kill(client)
        self.world.note("the checkpoint goes back")
        self.checkpoint.copy_to(self.world.folder / "newest")
        self.old_checkpoint.copy_to(self.checkpoint.folder)

    def _put_newest_checkpoint_back(self) -> None:
        newest = self.world.folder / "newest"
        if newest.exists():
            self.world.note("the newest checkpoint is put back")
            assert self.checkpoint is not None
            Checkpoint(newest).copy_to(self.checkpoint.folder)
            shutil.rmtree(newest)
        else:
            raise Violation("a checkpoint is called stale that never went back")

    def _set_clock(self) -> None:
        wrong = self.chance.choice([3 * 86400, 3600, -3600, 0])
        self.world.note(f"the clock is {wrong} seconds wrong")
        self.world.error = wrong * SECOND

    # The end

    def _settle_down(self) -> None:
        """Let everybody run without faults until the queue that is copied is empty."""
        self.calm = self.world.calm = True
        self.world.error = 0
        self.world.note("no more faults")
        for client in self.world.alive():
            client.frozen_until = 0
            if client.name.startswith(("producer", "tasks", "zombie", "reader")):
                self.world.kill(client)
        store = Store(self.world.address("near"), create=False)
        store.admin.accept_clock()
        far = Store(self.world.address(self.target), create=False)
        far.admin.accept_clock()
        for number in range(ROUNDS):
            for _ in range(60):
                self._keep_alive()
                self.world.step()
            waiting, _ = self._left(store, "a")
            if not waiting and (self.readers is None or self.readers.copied_all(store)):
                return
            if number == ROUNDS // 3:
                # An idle query notices a restore when it starts again, or with its next batch.
                for client in self.world.alive():
                    if client.name.startswith("copier"):
                        self.world.kill(client)
            # Longer and longer: a heartbeat may lie in the future, by a clock that was wrong.
            self.world.pass_time(min(60 << number, 86400) * SECOND)
            store.queue("a").sweep()
            store.admin.recover()
            self._release_reset_queries(store, far)
            store.queue("a").shovel(force=True)
            far.queue("b").sweep()
        raise Violation(f"the queue is never empty: {sorted(waiting)}")

    def _release_reset_queries(self, store: Store, far: Store) -> None:
        """Sweep what waits for queries whose checkpoint is gone, as a person does."""
        assert self.checkpoint is not None
        newest = Checkpoint(self.world.folder / "newest")
        kept = set()
        for each in (self.checkpoint, newest):
            if each.folder.exists() and each.last is not None:
                name = each.offset(each.last)["consumer"]
                with far.catalog.read() as connection:
                    published = newest_ticket(connection, name)
                # The sink refuses the older one if it knows batches of the newest, which is then
                # put back.
                if each is self.checkpoint or published is not None:
                    kept.add(name)
        for row in store.view("consumers").to_pylist():
            if row["for_restart"] and row["consumer"] not in kept:
                # Another one is alive: its checkpoint is there.
                with contextlib.suppress(errors.BadOption):
                    store.queue("a").sweep(consumer=row["consumer"])

    def _left(self, store: Store, name: str) -> tuple[list[int], list[int]]:
        """Return the numbers and the ids of a queue's messages."""
        queue = store.queue(name)
        rows = pa.concat_tables([queue.browse(), queue.browse(magazine="sideline")])
        return rows.column("number").to_pylist(), rows.column("_message_id").to_pylist()

    def _check(self) -> None:
        for client in self.world.alive():
            self.world.kill(client)
        self._audit()
        far = Store(self.world.address(self.target), create=False)
        numbers, ids = self._left(far, "b")
        # Whoever held them has had its time.
        self.world.watch += int(2 * SWEEP_AFTER) * SECOND
        self.delivered("last", numbers, ids, self.now)
        self.begin_settling("last", {"delete": numbers})
        if self.readers:
            self.readers.end(Store(self.world.address("near"), create=False))
        rules = Rules(
            sweep_after=SWEEP_AFTER,
            replacing=frozenset({"b"} if self.shape.policy else ()),
            copied={"a": "b"},
        )
        verdict = check(self.entries, rules)
        for counts in verdict.queues.values():
            self.counts.update(asdict(counts))
        if not verdict.right:
            offenders = verdict.offenders
            raise Violation("\n".join(f"{n} of {queue} is {fate}" for fate, queue, n in offenders))

    def _audit(self) -> None:
        for folder in sorted({"near", self.target}):
            with Store(self.world.address(folder), create=False) as store:
                audit(store)

    def _make_stores(self) -> None:
        for name in sorted({"near", self.target}):
            shutil.copytree(_template(), self.world.folder / name)
            worlds.dispose(self.world.address(name))
        key = "customer" if self.shape.policy else self.shape.key
        near = Store(self.world.address("near"), create=False)
        make_queue(
            near,
            "a",
            shards=self.shape.shards,
            key=key,
            policy=self.shape.policy,
            max_size=self.shape.max_size,
            room=self.shape.room,
            limits=self.shape.limits,
            fair_by="customer" if self.shape.fair and self.shape.policy is None else None,
            message_expiry=EXPIRY,
            sideline_expiry=EXPIRY,
            log=self.shape.log,
        )
        if self.readers:
            self.readers.begin(near)
        far = Store(self.world.address(self.target), create=False)
        make_queue(
            far,
            "b",
            shards=self.shape.shards,
            key=self.shape.key,
            limits=self.shape.limits,
            fair_by="customer" if self.shape.fair else None,
            message_expiry=EXPIRY,
            sideline_expiry=EXPIRY,
        )
        near.catalog.write(clock.look)
        far.catalog.write(clock.look)


class _Noting(Sink):
    """A sink that writes its work down in the history."""

    def __init__(self, history: _History, inner: Any) -> None:
        self._history, self._inner = history, inner
        self._numbers: list[int] = []
        #: When a batch was read, and the number of its intent in the history.
        self._begun = 0.0
        self._intent = 0

    def begins(self, rows: list[pa.RecordBatch]) -> None:
        self._numbers = [n for batch in rows for n in batch.column("number").to_pylist()]

    def write(self, rows: list[pa.RecordBatch]) -> Any:
        return self._inner.write(rows)


class _Copying(_Noting):
    """The sink of the query that copies; writes down what it publishes."""

    def begins(self, rows: list[pa.RecordBatch]) -> None:
        super().begins(rows)
        risk = self._history.risk.setdefault("copier", {})
        risk[len(risk)] = self._numbers
        self._begun = self._history.now

    def commit(self, messages: list[Any], number: int) -> None:
        history = self._history
        # A store that is source and target refuses a batch that was read before a restore.
        begun = self._begun if history.shape.far else history.now
        self._intent = len(history.entries)
        about = {"copy": self._intent, "numbers": self._numbers, "begun": begun}
        history.write("copying", "copier", store=history.target, **about)
        self._inner.commit(messages, number)

    def committed(self, number: int) -> None:
        self._history.write("copied", "copier", copy=self._intent)
        self._history.world.note(f"published batch {number}: {self._numbers}")

    def acknowledged(self, end: dict[str, Any]) -> None:
        self._history.risk.pop("copier", None)


class _Settling(_Noting):
    """The sink of the query that settles; writes down what it was handed and what it settled."""

    #: When the source was last asked for a batch; a batch that is run again was fired before.
    _asked = inf

    def asks(self) -> None:
        self._asked = self._history.now

    def begins(self, rows: list[pa.RecordBatch]) -> None:
        super().begins(rows)
        ids = [id for batch in rows for id in batch.column("_message_id").to_pylist()]
        history = self._history
        # The source has fired them when it was asked. A query that was down may have done so long
        # ago.
        asked = min(self._asked, history.now)
        since = history.now - SWEEP_AFTER if history.shape.late else asked
        self._begun = min(history.delivered("settler", self._numbers, ids, since), asked)
        history.world.note(f"settles {self._numbers}")

    def commit(self, messages: list[Any], number: int) -> None:
        outcomes: dict[str, list[int]] = {"delete": [], "sideline": []}
        for each in self._numbers:
            outcomes[self._inner.decide(each)].append(each)
        # After a restore, the batch settles nothing: its messages wait again.
        self._intent = self._history.begin_settling("settler", outcomes, begun=self._begun)
        self._inner.commit(messages, number)

    def committed(self, number: int) -> None:
        # Some may have been swept before.
        held = 0 if self._history.shape.late else len(self._numbers)
        self._history.write("settled", "settler", settle=self._intent, held=held)


@lru_cache(maxsize=1)
def _template() -> Path:
    """Return the folder of an empty store, to be copied."""
    made = tempfile.TemporaryDirectory(prefix="ignis-template-")
    _kept.append(made)
    folder = Path(made.name) / "store"
    with Store.open(folder) as store:
        # The time at which it was made is not that of a world.
        store.catalog.write(lambda connection: connection.execute(delete(clocks)))
    return folder


_kept: list[Any] = []


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
