"""More roles of `make soak`: processes that fork, whose handlers are late, and that browse."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sqlite3
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from random import Random
from typing import Any, NoReturn

import pyarrow as pa

from queue_core import ConsumerPool, IgnisError, Store, batch_handler
from tests.referee import NUMBERS_BITS
from tests.soak.cast import Part
from tests.soak.history import History, read
from tests.soak.workload import (
    KEYS,
    QUEUES,
    SCHEMA,
    SHARDS,
    Player,
    Scene,
    altered,
    consume,
    messages,
    produce,
)

#: A queue that stays empty; one whose handlers are late; and two that are only browsed.
EMPTY, LATE, SHOWN = "forked", "late", ("shown-1", "shown-2")
#: The names of browsers, of which each process uses one at a time.
BROWSERS = ("left", "middle", "right")
#: Messages that a browser holds at most when it dies, for each of its workers and queues.
BATCH = 10
#: Seconds after which a process hangs.
PATIENCE = 150.0


def make_more_queues(scene: Scene) -> None:
    """Create the queues that only these roles use."""
    with Store(scene.address) as store:
        for name in (EMPTY, LATE, *SHOWN):
            store.create_queue(scene.prefix + name, SCHEMA, shards=SHARDS, message_expiry=None)


# Forks


def fork(player: Player) -> Any:
    """
    Fork while threads use the store, and then close it, again and again.

    Each child loads, fires and settles, with a store of its own or with the inherited one.
    """
    while not player.scene.told("finishing"):
        other, pid = _other(player), 0
        try:
            with Store(player.scene.address, create=False) as store, _busy(store, player):
                time.sleep(player.chance.uniform(0, 0.2))
                pid = os.fork()
                if pid == 0:
                    _act_as_child(other, store)
        except IgnisError as error:
            player.note("fork", error)
        if pid:
            _wait_for(pid, other.life)
            player.history.write("died", name=other.life)
    yield


def _busy(store: Store, player: Player) -> AbstractContextManager[Any]:
    ways: list[Callable[[], AbstractContextManager[Any]]] = [
        nullcontext,
        lambda: _connected(store),
        store.side_tasks,
        lambda: ConsumerPool(store, player.scene.prefix + EMPTY, lambda _: True),
        lambda: _repeating(lambda: player.queue(store, EMPTY).fire(timeout=0.5)),
        lambda: _producing(_other(player), store),
    ]
    return player.chance.choice(ways)()


@contextmanager
def _connected(store: Store) -> Iterator[None]:
    """Keep a connection of `sqlite3`, as a caller with tables in the catalog's database may."""
    if store.catalog.file is None:
        yield
        return
    with closing(sqlite3.connect(store.catalog.file)) as driver:
        driver.execute("SELECT count(*) FROM queues").fetchall()
        yield


@contextmanager
def _producing(player: Player, store: Store) -> Iterator[None]:
    """Play a producer in a thread until the end of the block."""
    step = produce(player)
    next(step, None)
    with _repeating(lambda: step.send(store)):
        yield
    player.history.close()


@contextmanager
def _repeating(call: Callable[[], object]) -> Iterator[None]:
    """Repeat a call in a thread until the end of the block; raise what is no error of ignis."""
    over = threading.Event()

    def repeat() -> None:
        with suppress(IgnisError, StopIteration):
            while not over.is_set():
                call()

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(repeat)
        try:
            yield
        finally:
            over.set()
    done.result()


def _other(player: Player) -> Player:
    """Return a player with a life and numbers of its own."""
    number = next(_UNIQUE)
    life, chance = f"{player.life}-{number}", Random(player.chance.random())
    history = History(player.scene.folder, life)
    return Player(player.scene, life, player.number + (number << 16), history, chance)


_UNIQUE = itertools.count(1)


def _act_as_child(player: Player, inherited: Store) -> NoReturn:
    code = 0
    try:
        # With its parent, so that no one has the catalog open whom the soak does not know.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        own = player.chance.random() < 0.5
        store = Store(player.scene.address, create=False) if own else inherited
        for role in (produce, consume):
            step = role(player)
            next(step, None)
            for _ in range(5):
                step.send(store)
    except StopIteration:
        # The soak is finishing.
        pass
    except IgnisError as error:
        player.history.write("error", kind=type(error).__name__, verb="child", text=str(error))
    except BaseException:  # noqa: BLE001 - its parent reports it
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)


def _wait_for(pid: int, life: str) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"{life} ended with {os.waitstatus_to_exitcode(status)}"
            return
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"{life} hangs after a fork")
        time.sleep(0.05)


# Readers of a log


def halt(player: Player) -> Any:
    """Pause and resume the subscriptions; meanwhile, the log keeps what they have not taken."""
    while True:
        store = yield
        # Another one may have died before it could.
        for name in player.scene.readers:
            _pause(player, store, name, on=False)
        if player.scene.told("finishing"):
            return
        name = player.chance.choice(player.scene.readers)
        _pause(player, store, name, on=True)
        time.sleep(player.chance.uniform(0, 4))


def _pause(player: Player, store: Store, name: str, *, on: bool) -> None:
    try:
        admin = player.queue(store, name).admin
        (admin.pause if on else admin.resume)()
    except IgnisError as error:
        player.note("pause", error)


# Time limits of handlers


def hurry(player: Player) -> Any:
    """
    Run pools whose handlers load, and are late at any moment; other threads load beside them.

    The calls are interrupted, and nothing else. Only another thread writes the history: an
    interrupt may be anywhere in a handler.
    """
    first = 0
    while not player.scene.told("finishing"):
        with ThreadPoolExecutor(1) as notes, suppress(_Over):
            try:
                with Store(player.scene.address, create=False) as store:
                    late = player.queue(store, LATE)
                    late.load(messages(first, 200, len(late.schema) - len(SCHEMA)))
                    first += 200
                    _hurry(player, store, notes)
            except IgnisError as error:
                player.note("pool", error)
    yield


class _Over(Exception):
    """The soak has ended."""


def _hurry(player: Player, store: Store, notes: ThreadPoolExecutor) -> None:
    limit, chance = player.chance.choice((0.05, 0.2, 0.5)), player.chance
    wrong: list[Any] = []

    def write(what: str, **details: Any) -> None:
        notes.submit(player.history.write, what, **details).result()

    def handler(row: dict[str, Any]) -> bool:
        time.sleep(chance.uniform(0, limit))
        wrong.extend(altered(pa.Table.from_pylist([row])))
        load = next(_UNIQUE)
        number, name = (player.number + (load << 16)) << NUMBERS_BITS, chance.choice(list(QUEUES))
        write("loading", load=load, queue=name, first=number, count=1, keys=KEYS)
        player.queue(store, name).load(messages(number, 1), timeout=2)
        write("loaded", load=load)
        if chance.random() < 0.1:
            # Within ignis, until its time is up.
            player.queue(store, EMPTY).fire(timeout=None)
        time.sleep(chance.uniform(0, limit))
        return True

    queue = player.scene.prefix + LATE
    pool = ConsumerPool(store, queue, handler, concurrency=8, batch=5, handler_timeout=limit)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(_producing(_other(player), store))
        stack.enter_context(pool)
        counts, end = pool.counts, time.monotonic() + PATIENCE
        while not pool.drain(1.0):
            if player.scene.told("stop"):
                raise _Over
            if pool.counts != counts:
                # On a busy machine, most calls are late, again and again.
                counts, end = pool.counts, time.monotonic() + PATIENCE
            assert time.monotonic() < end, f"a pool hangs; {counts}, limit {limit} s"
    assert not wrong, f"handlers got {len(wrong)} altered messages: {wrong[:5]}"


# Browsers


def browse(player: Player) -> Any:
    """Browse several queues by one of several names for a while, and load them meanwhile."""
    first = player.number << NUMBERS_BITS
    while not player.scene.told("finishing"):
        try:
            with Store(player.scene.address, create=False) as store:
                queues = [player.queue(store, name) for name in SHOWN]
                name = player.chance.choice(BROWSERS)
                with _browser(store, player.scene, name, player.history) as pool:
                    end = time.monotonic() + player.chance.uniform(1, 5)
                    while time.monotonic() < end and pool.error is None:
                        player.chance.choice(queues).load(messages(first, 3))
                        first += 3
                        time.sleep(player.chance.uniform(0, 0.2))
        except IgnisError as error:
            player.note("browse", error)
    yield


@contextmanager
def _browser(store: Store, scene: Scene, name: str, history: History) -> Iterator[ConsumerPool]:
    history.write("looks", by=name)

    @batch_handler
    def show(batch: pa.RecordBatch) -> list[bool]:
        history.write("shown", by=name, messages=batch.column("_message_id").to_pylist())
        return [True] * batch.num_rows

    queues = [scene.prefix + each for each in SHOWN]
    with ConsumerPool(store, queues, show, browse=True, name=name, batch=BATCH) as pool:
        yield pool
    history.write("looked", by=name)


def judge_browsers(store: Store, scene: Scene) -> list[str]:
    """
    Return what is wrong with what the browsers have seen, each of which looks once more.

    Each has seen every message once. Those that a browser held when it died may be missing, and
    those that it saw before a restore may come again.
    """
    history = History(scene.folder, "judge")
    for name in BROWSERS:
        with _browser(store, scene, name, history) as pool:
            if not pool.drain(5 * PATIENCE):
                return [f"browser {name} comes to no end"]
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    unfinished, restored, wrong = Counter[str](), [], []
    for entry in read(scene.folder):
        match entry["what"]:
            case "shown":
                for message in entry["messages"]:
                    times[entry["by"], message].append(entry["at"])
            case "looks" | "looked":
                unfinished[entry["by"]] += 1 if entry["what"] == "looks" else -1
            case "restored":
                restored.append((entry["begun"], entry["at"]))
    queues = [store.queue(scene.prefix + name) for name in SHOWN]
    there = [id for queue in queues for id in queue.browse()["_message_id"].to_pylist()]
    for name in BROWSERS:
        seen = {message: sorted(times[name, message]) for message in there}
        twice = [m for m, at in seen.items() if len(at) - 1 > _between(at, restored)]
        missing = [m for m, at in seen.items() if not at]
        if twice:
            wrong.append(f"browser {name} saw {len(twice)} messages again: {twice[:5]}")
        if len(missing) > BATCH * len(SHOWN) * unfinished[name]:
            wrong.append(f"browser {name} never saw {len(missing)} messages: {missing[:5]}")
    return wrong


def _between(at: list[float], restored: list[tuple[float, float]]) -> int:
    """How many restores came between the first and the last of these times."""
    return sum(at[0] <= ended and begun <= at[-1] for begun, ended in restored) if at else 0


def more_parts() -> list[Part]:
    """The parts of these roles."""
    return [Part(role) for role in (fork, hurry, browse, browse, halt)]
