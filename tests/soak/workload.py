"""The work of the processes of a soak: load, fire and settle, handle, run side tasks.

Each process writes every intent and its outcome into its history. An error of ignis is written down
and followed by another attempt. Any other error ends the process, and the soak reports it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.exc import DBAPIError

from queue_core import (
    BadOutcome,
    ConsumerFenced,
    ConsumerPool,
    DamagedSegment,
    Firing,
    IgnisError,
    Invalid,
    Queue,
    Store,
)
from queue_core.catalog.databases.error_codes import ErrorCodes
from queue_core.segments import stager
from queue_core.upkeep.tasks.vacuum import GRACE_SECONDS
from queue_core.values.address import Address
from queue_core.values.ids import IdSet
from queue_core.values.outcomes import Settlement
from queue_core.verbs.quarantine import quarantine
from queue_core.verbs.settle import settle
from tests.hosts import enter
from tests.referee import NUMBERS_BITS, Rules
from tests.soak.history import History
from tests.statements import was_late

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("customer", pa.string(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
        #: In how many of the columns that were added later it has a value.
        pa.field("grown", pa.int64(), nullable=False),
    ]
)
#: Keys of each producer.
KEYS = 7
SHARDS = 4
BOUND = 500
#: The queues, and their settings. Some messages of each are large enough for files.
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bounded": {"max_size": BOUND},
    "unique": {"dedup": ("number",)},
    "latest": {"policy": "latest"},
    "grouped": {"group": "customer"},
    "handled": {},
}
#: Of `make soak`: the subscriptions to a log of `plain`, and the conditions on what they get.
READERS: dict[str, str | None] = {"plain-all": None, "plain-some": "number % 3 <> 0"}
#: How long that log keeps what both have read.
LOG = "10 seconds"
#: Those that consumers fire from; `handled` is for pools.
FIRED = ("plain", "bounded", "unique", "latest", "grouped")
#: What consumers of groups ask for.
SELECTORS = (None, "number >= 0", "number % 2 = 0", "_age >= 0")
#: Seconds after which a firing is swept.
SWEEP_AFTER = 8.0
#: The size in bytes from which a load becomes a file.
_INLINE_BYTES = 4096


@dataclass(frozen=True)
class Scene:
    """Where a soak takes place."""

    address: Address
    folder: Path
    #: Before the names of all queues.
    prefix: str = ""
    #: Queues besides those of `QUEUES`, to load into and to fire from.
    more_loaded: tuple[str, ...] = ()
    more_fired: tuple[str, ...] = ()
    #: Seconds for which vacuum leaves files alone.
    grace: float = GRACE_SECONDS
    #: The network namespaces of the roles, by their names; the others are in this one.
    spaces: Mapping[str, str] = field(default_factory=dict)

    def told(self, what: str) -> bool:
        """Return whether `tell` was called, by any process."""
        return (self.folder / what).exists()

    def tell(self, what: str) -> None:
        """Tell all processes: ``finishing`` when nothing more is loaded, ``stop`` at the end."""
        (self.folder / what).touch()

    @property
    def queues(self) -> list[str]:
        """The names of all queues."""
        return sorted({*QUEUES, *self.more_loaded, *self.more_fired})

    @property
    def readers(self) -> list[str]:
        """The subscriptions among the queues."""
        return [name for name in self.more_fired if name in READERS]

    def rules(self, **more: Any) -> Rules:
        """What the queues promise."""
        return Rules(
            sweep_after=SWEEP_AFTER,
            ordered=frozenset({"plain", "bounded", "unique", "grouped", *self.readers}),
            replacing=frozenset({"latest"}),
            grouped=frozenset({"grouped"}),
            reading={name: ("plain", READERS[name] or "true") for name in self.readers},
            **more,
        )


def make_queues(store: Store, scene: Scene) -> None:
    """Create the queues of a soak."""
    for name in {*scene.queues} - {*scene.readers}:
        settings = QUEUES.get(name, {})
        if name == "plain" and scene.readers:
            settings = {**settings, "log": LOG}
        key = None if "group" in settings else "customer"
        store.create_queue(
            scene.prefix + name,
            SCHEMA,
            shards=SHARDS,
            key=key,
            # A clock that was wrong makes messages look days old.
            message_expiry=None,
            **settings,
        )
    for name in scene.readers:
        to = scene.prefix + "plain"
        store.subscribe(scene.prefix + name, to=to, start="earliest", selector=READERS[name])


def messages(first: int, count: int, grown: int = 0) -> pa.Table:
    """Return the messages of these numbers, from which their content in all columns follows."""
    numbers = pa.array(range(first, first + count), pa.int64())
    columns = [numbers, *_contents(numbers), pa.array([grown] * count, pa.int64())]
    more = [pc.add(numbers, each) for each in range(grown)]
    return pa.table([*columns, *more], schema=pa.schema([*SCHEMA, *map(added, range(grown))]))


def added(number: int) -> pa.Field:
    """Return the column that is added to a queue as this one, from 0."""
    return pa.field(f"added_{number}", pa.int64())


def altered(rows: pa.Table) -> list[int]:
    """Return the numbers of messages whose content differs from the loaded one."""
    numbers = rows.column("number").combine_chunks()
    customers, payloads = _contents(numbers)
    same = pc.and_(
        pc.equal(rows.column("customer"), customers), pc.equal(rows.column("payload"), payloads)
    )
    for each in range(pc.max(rows.column("grown")).as_py() or 0):
        values = rows.select([n for n in rows.column_names if n == added(each).name]).columns
        kept = pc.equal(values[0], pc.add(numbers, each)) if values else pa.scalar(None, pa.bool_())
        without = pc.less_equal(rows.column("grown"), each)
        same = pc.and_(same, pc.or_(without, pc.fill_null(kept, False)))
    return list(numbers.filter(pc.invert(same)).to_pylist())


def _contents(numbers: pa.Array) -> tuple[pa.Array, pa.Array]:
    values = numbers.to_numpy()
    keys = pc.binary_join_element_wise(
        pc.cast(pa.array(values >> NUMBERS_BITS), pa.string()),
        pc.cast(pa.array(values % KEYS), pa.string()),
        "/",
    )
    mixed = pc.cast(pa.array(values * 2_654_435_761 % (1 << 62)), pa.string())
    return keys, pc.binary_repeat(pc.utf8_lpad(mixed, 20, "0"), 5)


@dataclass(frozen=True)
class Player:
    """One life of a process: its role, its history and its chance."""

    scene: Scene
    life: str
    number: int
    history: History
    chance: random.Random

    def queue(self, store: Store, name: str) -> Queue:
        """Open a queue of the soak."""
        return store.queue(self.scene.prefix + name)

    def note(self, verb: str, error: IgnisError) -> None:
        """
        Write down an error of ignis, and rest; raise it if a call was wrong.

        Ids that the store has never given out are the exception: an older copy of the catalog,
        put back meanwhile, has not.
        """
        kind = type(error).__name__
        self.history.write("error", kind=kind, verb=verb, text=str(error)[:300])
        if isinstance(error, Invalid) and not isinstance(error, BadOutcome):
            raise error
        time.sleep(self.chance.uniform(0.05, 0.3))


#: A role takes an open store for each step.
Role = Callable[[Player], Any]


def play(role: Role, scene: Scene, life: str, number: int, seed: int) -> None:
    """Play a role until told to stop; open the store again after each error."""
    if space := scene.spaces.get(role.__name__):
        enter(space)
    stager.INLINE_BYTES = _INLINE_BYTES
    player = Player(scene, life, number, History(scene.folder, life), random.Random(seed))
    _note_refusals(player.history)
    player.history.write("began", role=role.__name__)
    step = role(player)
    next(step, None)
    while not scene.told("stop"):
        try:
            with Store(scene.address, create=False) as store:
                while not scene.told("stop"):
                    step.send(store)
        except StopIteration:
            break
        except IgnisError as error:
            player.note("open", error)
    player.history.write("ended")
    player.history.close()


def _note_refusals(history: History) -> None:
    """Write down each time that the database refuses a transaction, which no caller hears of."""
    can_retry = ErrorCodes.can_retry

    def noted(codes: ErrorCodes, error: DBAPIError) -> bool:
        if not was_late(error):
            history.write("refused by the database", why=str(error.orig))
        return can_retry(codes, error)

    ErrorCodes.can_retry = noted  # type: ignore[method-assign]


def produce(player: Player) -> Any:
    """Load messages into all queues, until no more are wanted."""
    first, load = player.number << NUMBERS_BITS, 0
    names = [*QUEUES, *player.scene.more_loaded]
    while not player.scene.told("finishing"):
        store = yield
        name = player.chance.choice(names)
        count = player.chance.choice((1, 1, 1, player.chance.randint(2, 20), 100))
        if name == "grouped":
            # They come out one of a key at a time.
            count = min(count, KEYS)
        while True:
            load += 1
            outcome = _load(player, store, name, load, first, count)
            if outcome == "loaded" or name != "unique" or player.scene.told("stop"):
                break
            # The same messages again, as often as it takes: the queue leaves them out if it has
            # them already.
            time.sleep(0.1)
            store = yield
        first += count
        time.sleep(player.chance.expovariate(8))


def _load(player: Player, store: Store, name: str, load: int, first: int, count: int) -> str:
    details = {"queue": name, "first": first, "count": count, "keys": KEYS}
    player.history.write("loading", load=load, **details)
    try:
        queue = player.queue(store, name)
        rows = messages(first, count, len(queue.schema) - len(SCHEMA))
        queue.load(rows, player.chance.choice((0.0, 0.5, 2.0)))
    except IgnisError as error:
        outcome = "unknown" if error.outcome_unknown else "refused"
        player.history.write(outcome, load=load)
        player.note("load", error)
        return outcome
    player.history.write("loaded", load=load)
    return "loaded"


def consume(player: Player) -> Any:
    """Fire from all queues but those of pools, and settle: mostly delete."""
    names, settle = [*FIRED, *player.scene.more_fired], 0
    known: tuple[Store, Any] | None = None
    opened: dict[str, Queue] = {}
    while True:
        store = yield
        name = player.chance.choice(names)
        try:
            if known is None or known[0] is not store:
                known, opened = (store, store.consumer(f"soak-{player.life}")), {}
            # Opened before others add columns to it.
            queue = opened[name] = opened.get(name) or player.queue(store, name)
            begun = time.monotonic()
            # The first message of a group is asked for, or the whole group waits.
            selector = player.chance.choice(SELECTORS) if name == "grouped" else None
            count = player.chance.choice((1, 10, 100))
            firing = queue.fire(count, selector=selector, timeout=0.05, consumer=known[1])
        except IgnisError as error:
            if isinstance(error, ConsumerFenced):
                # Its catalog is an older one now, which knows another life of this consumer.
                known = None
            player.note("fire", error)
            continue
        if firing.ticket is None:
            continue
        numbers = firing.messages.column("number").to_pylist()
        _write_delivered(player.history, name, begun, firing)
        settle += 1
        _settle(player, store, name, settle, firing, numbers)


def _settle(
    player: Player, store: Store, name: str, settle: int, firing: Any, numbers: list[int]
) -> None:
    weights = (1, 0, 0) if player.scene.told("finishing") else (0.9, 0.05, 0.05)
    names = ("delete", "sideline", "reload")
    outcomes = player.chance.choices(names, weights, k=len(numbers))
    chosen = {
        outcome: [n for n, o in zip(numbers, outcomes, strict=True) if o == outcome]
        for outcome in names
    }
    player.history.write("settling", queue=name, settle=settle, **chosen)
    table = pa.table({"_message_id": firing.ids, "outcome": outcomes})
    try:
        held = player.queue(store, name).settle(Settlement.of(table), firing.ticket.consumer)
    except IgnisError as error:
        player.note("settle", error)
        return
    player.history.write("settled", settle=settle, held=held)


def handle(player: Player) -> Any:
    """Run a pool whose handler fails now and then, until told to stop."""
    settle, lock = 0, threading.Lock()
    #: When the pool was opened, and how far the catalog's clock was ahead of the stopwatch.
    opened = ahead = 0.0

    def handler(row: dict[str, Any]) -> bool:
        nonlocal settle
        number, attempt = row["number"], row["_attempt"]
        fails = attempt == 0 and number % 13 == 0
        with lock:
            settle += 1
            mine = settle
        at = time.monotonic()
        player.history.write(
            "delivered",
            queue="handled",
            # The pool has had it in hand since its firing, from which a sweep counts.
            begun=min(at, max(opened, row["_fired_at"].timestamp() - ahead)),
            numbers=[number],
            messages=[row["_message_id"]],
            attempts=[attempt],
            keys=KEYS,
        )
        chosen: dict[str, list[int]] = {"delete": [], "sideline": [], "reload": []}
        chosen["sideline" if fails else "delete"].append(number)
        player.history.write("settling", queue="handled", settle=mine, **chosen)
        return not fails

    while True:
        store = yield
        columns = ["number", "_message_id", "_attempt", "_fired_at"]
        name = player.scene.prefix + "handled"
        try:
            opened = time.monotonic()
            ahead = store.catalog.now() / 1e6 - opened
            pool = ConsumerPool(store, name, handler, concurrency=2, batch=20, columns=columns)
            with pool:
                while not player.scene.told("stop") and pool.error is None:
                    time.sleep(0.1)
        except IgnisError as error:
            player.note("pool", error)
        # The messages that it had in hand are given back, or swept.
        player.history.write("died", name=player.life)


def keep_house(player: Player) -> Any:
    """Shovel, sweep, compact, repair, trim and vacuum, again and again."""
    while True:
        store = yield
        with _noting(player, "recover"):
            store.admin.recover()
        for name in player.scene.queues:
            # What a Spark query holds is left to the query.
            for verb in _VERBS if name not in player.scene.more_loaded else _VERBS[2:]:
                with _noting(player, verb.__name__):
                    verb(player.queue(store, name))
        with _noting(player, "vacuum"):
            store.admin.vacuum(grace=player.scene.grace)
        time.sleep(0.3)


@contextmanager
def _noting(player: Player, verb: str) -> Iterator[None]:
    try:
        yield
    except IgnisError as error:
        player.note(verb, error)


def shovel(queue: Queue) -> None:
    """Move failed messages back."""
    queue.shovel()


def sweep(queue: Queue) -> None:
    """Sideline messages that are in flight for too long."""
    queue.sweep(SWEEP_AFTER)


def compact(queue: Queue) -> None:
    """Rewrite small segments."""
    queue.admin.compact()


def repair(queue: Queue) -> None:
    """Put back messages that were quarantined while files seemed to be missing."""
    queue.admin.repair()


def trim(queue: Queue) -> None:
    """Remove the beginning of a log."""
    queue.admin.trim()


_VERBS: tuple[Callable[[Queue], None], ...] = (shovel, sweep, compact, repair, trim)


def drain(store: Store, scene: Scene, history: History) -> dict[str, int]:
    """
    Take all remaining messages after all processes have ended, as one more consumer.

    Returns how many messages are still in a queue; it should be none.
    """
    left = {}
    for name in scene.queues:
        queue = store.queue(scene.prefix + name)
        queue.admin.repair()
        # What a Spark query should have taken is left to be found.
        for magazine in ("main", "sideline") if name not in scene.more_loaded else ():
            _give_back(store, queue, magazine)
            for number in range(1000):
                if not _take(queue, magazine, name, f"{name}/{magazine}/{number}", history):
                    break
        counts = queue.metadata()
        rest = sum(
            sum(counts.column(column).to_pylist()) for column in ("waiting", "in_flight", "damaged")
        )
        if rest:
            left[name] = rest
    return left


def _give_back(store: Store, queue: Queue, magazine: str) -> None:
    """Reload messages of dead processes: an operator who knows that they are dead may do so."""
    while True:
        try:
            rows = queue.browse(magazine=magazine)
            break
        except DamagedSegment:
            # It is left to be found, and the rest is taken.
            quarantine(store.catalog, store.storage)
    held = rows.filter(pc.is_valid(rows.column("_fired_at")))
    if held.num_rows:
        reloaded = Settlement(reloaded=IdSet.of(held.column("_message_id")))
        settle(store.catalog, [queue.info], reloaded)


def _take(queue: Queue, magazine: str, name: str, settle: str, history: History) -> bool:
    begun = time.monotonic()
    try:
        firing = queue.fire(1000, magazine=magazine)
    except DamagedSegment:
        return True
    if firing.ticket is None:
        return False
    numbers = firing.messages.column("number").to_pylist()
    _write_delivered(history, name, begun, firing)
    chosen = {"delete": numbers, "sideline": [], "reload": []}
    history.write("settling", queue=name, settle=settle, **chosen)
    history.write("settled", settle=settle, held=queue.delete(firing))
    return True


def _write_delivered(history: History, name: str, begun: float, firing: Firing) -> None:
    rows = firing.messages
    history.write(
        "delivered",
        queue=name,
        begun=begun,
        fired=None if firing.ticket is None else firing.ticket.fired_at,
        numbers=rows.column("number").to_pylist(),
        messages=firing.ids.to_pylist(),
        attempts=rows.column("_attempt").to_pylist(),
        altered=altered(rows),
        keys=KEYS,
    )
