"""What the processes of an ensemble do: load, fire and settle, shovel, sweep, compact, vacuum.

Each writes into its journal what it is about to do before it does it, and what came of it. They go
on until told by a file: ``finishing`` when all is loaded, ``stop`` when nothing is left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from queue_core import Firing, Queue, Store
from queue_core.catalog.databases.error_codes import ErrorCodes
from queue_core.errors import DamagedSegment, PublicationRefused
from queue_core.segments import stager
from queue_core.segments.reader import read_table
from queue_core.selection.request import FireRequest
from queue_core.upkeep.tasks import compaction_plan
from queue_core.values.address import Address
from queue_core.values.model import Consumer, TicketRange
from queue_core.values.outcomes import Settlement
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import plan_tickets
from tests.children import Journal
from tests.processes.refusals import was_late

#: A message knows who loaded it as which, and can be told from any other by what it carries.
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("loader", pa.int32(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
    ]
)
#: Keys of each loader.
KEYS = 5
#: Smaller segments than this are inlined, so that many become files.
INLINE_BYTES = 4096
#: Seconds after which a fired message is swept, and a file that nobody names removed.
SWEEP_AFTER, GRACE = 2.0, 0.5


@dataclass(frozen=True)
class Scene:
    """Where an ensemble works."""

    address: Address
    folder: Path

    def told(self, what: str) -> bool:
        return (self.folder / what).exists()

    def tell(self, what: str) -> None:
        (self.folder / what).touch()


def messages(loader: int, first: int, count: int) -> pa.Table:
    """*count* messages of a loader, numbered from *first*."""
    numbers = range(first, first + count)
    columns = [
        [f"{loader}/{number % KEYS}" for number in numbers],
        [loader] * count,
        list(numbers),
        [payload(loader, number) for number in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


def payload(loader: int, number: int) -> str:
    return f"message {number} of {loader} " + "." * (number % 60)


def play(role: Callable[..., None], scene: Scene, journal: Journal, *args: int) -> None:
    """Play a role as a process of its own."""
    stager.INLINE_BYTES = INLINE_BYTES
    _note_retries(journal)
    with Store(scene.address) as store:
        role(store, scene, journal, *args)
    journal.write("ended")


def load(
    store: Store, scene: Scene, journal: Journal, loader: int, loads: int, first: int, seed: int
) -> None:
    """Some loads, most of them of one message, others of hundreds."""
    queue, chance = store.queue("ensemble"), random.Random(seed)
    for _ in range(loads):
        count = chance.choice((1, 1, 1, 1, 1, chance.randint(2, 20), chance.randint(50, 400)))
        rows = messages(loader, first, count)
        journal.write("loading", loader=loader, first=first, count=count)
        ids = _timed(journal, "load", partial(_load, queue, rows, journal))
        journal.write("loaded", loader=loader, first=first, ids=ids.to_pylist())
        first += count


def _load(queue: Queue, rows: pa.Table, journal: Journal) -> pa.Array:
    while True:
        try:
            return queue.load(rows)
        except PublicationRefused:
            # With so short a grace period, being slow is enough.
            journal.write("refused")


def fire_and_settle(store: Store, scene: Scene, journal: Journal, firer: int, seed: int) -> None:
    """Fire; then delete most, sideline some, reload some, and now and then forget all about it."""
    queue, chance = store.queue("ensemble"), random.Random(seed)
    name = f"firer-{firer}-{seed}"
    consumer = store.consumer(name)
    while not scene.told("stop"):
        if not scene.told("finishing") and chance.random() < 0.02:
            _fire_unseen(store, queue, journal, f"{name}-{chance.random()}")
        most = chance.choice((1, 10, 100, 1000))
        firing: Firing | None = None
        with _reading(journal):
            fired = partial(queue.fire, most, timeout=0.1, consumer=consumer)
            firing = _timed(journal, "fire", fired)
        if firing is None or firing.ticket is None:
            continue
        _check(firing.messages)
        journal.write(
            "fired",
            consumer=name,
            ticket=firing.ticket.number,
            at=firing.ticket.fired_at,
            ids=firing.ids.to_pylist(),
            loaders=firing.messages.column("loader").to_pylist(),
            numbers=firing.messages.column("number").to_pylist(),
        )
        if not scene.told("finishing") and chance.random() < 0.03:
            journal.write("forgotten", ids=firing.ids.to_pylist())
            continue
        _settle(queue, journal, firing.ids, chance, consumer, scene.told("finishing"))


def _settle(
    queue: Queue,
    journal: Journal,
    ids: pa.ChunkedArray,
    chance: random.Random,
    consumer: Consumer,
    finishing: bool,
) -> None:
    weights = (1, 0, 0) if finishing else (0.85, 0.08, 0.07)
    outcomes = chance.choices(("delete", "sideline", "reload"), weights, k=len(ids))
    by_outcome = {
        outcome: [i for i, o in zip(ids.to_pylist(), outcomes, strict=True) if o == outcome]
        for outcome in ("delete", "sideline", "reload")
    }
    journal.write("settling", **by_outcome)
    rows = pa.table(
        {"_message_id": ids, "outcome": outcomes, "reason": [f"by {consumer.name}"] * len(ids)}
    )
    settlement = Settlement.of(rows)
    settled = _timed(journal, "settle", partial(queue.settle, settlement, consumer))
    journal.write("settled", held=settled, asked=len(ids))


def _fire_unseen(store: Store, queue: Queue, journal: Journal, name: str) -> None:
    """Like a streaming query that dies before it plans the fired messages."""
    with _reading(journal):
        query = store.consumer(name, beats=True)
        wanted = FireRequest(queue_ids=(queue.info.id,), max_messages=10)
        ticket = fire(store.catalog, query, wanted, seen=False).ticket
        if ticket is None:
            return
        with store.catalog.read() as connection:
            held = plan_tickets(
                connection, store.storage.uri, [queue.info], TicketRange(query, 0, ticket.number)
            )
        ids = read_table(held, ["_message_id"]).column("_message_id")
        journal.write("unseen", ids=ids.to_pylist())


@contextmanager
def _reading(journal: Journal) -> Iterator[None]:
    """
    Fire and read in the block, or note that the messages were taken away before they were read.

    They are swept, finished by another and vacuumed. With times so short, being slow is enough.
    """
    begun = time.monotonic()
    try:
        yield
    except DamagedSegment:
        if time.monotonic() - begun < SWEEP_AFTER:
            raise
        journal.write("unread")


def _check(rows: pa.Table) -> None:
    """Delivered messages equal the loaded ones."""
    said = rows.select(["loader", "number", "payload", "key"]).to_pydict()
    for loader, number, text, key in zip(*said.values(), strict=True):
        assert text == payload(loader, number)
        assert key == f"{loader}/{number % KEYS}"
    ids = rows.column("_message_id").to_numpy()
    assert len(np.unique(ids)) == len(ids)


def shovel(store: Store, scene: Scene, journal: Journal, seed: int) -> None:
    queue, chance = store.queue("ensemble"), random.Random(seed)
    while not scene.told("stop"):
        limit = chance.choice((None, 10))
        journal.write("shovelled", count=_timed(journal, "shovel", partial(queue.shovel, limit)))
        time.sleep(0.05)


def sweep(store: Store, scene: Scene, journal: Journal, seed: int) -> None:
    queue = store.queue("ensemble")
    while not scene.told("stop"):
        swept = _timed(journal, "sweep", partial(queue.sweep, SWEEP_AFTER))
        recovered = _timed(journal, "recover", partial(store.recover, dead_after=SWEEP_AFTER))
        journal.write("rescued", swept=swept, recovered=recovered)
        time.sleep(0.05)


def vacuum(store: Store, scene: Scene, journal: Journal, seed: int) -> None:
    while not scene.told("stop"):
        removed = _timed(journal, "vacuum", partial(store.vacuum, grace=GRACE))
        journal.write("removed", count=len(removed))
        time.sleep(0.05)


def compact(store: Store, scene: Scene, journal: Journal, seed: int) -> None:
    """Even few neighbours, so that there is always something to do."""
    compaction_plan.NEIGHBOURS = 3
    queue = store.queue("ensemble")
    while not scene.told("stop"):
        try:
            count = _timed(journal, "compact", queue.compact)
            journal.write("compacted", count=count)
        except (PublicationRefused, DamagedSegment):
            # With so short a grace period, being slow is enough.
            journal.write("refused")
        time.sleep(0.05)


def _timed(journal: Journal, what: str, verb: Callable[[], Any]) -> Any:
    begun = time.perf_counter()
    result = verb()
    journal.write("took", verb=what, seconds=round(time.perf_counter() - begun, 6))
    return result


def _note_retries(journal: Journal) -> None:
    """
    Write down each time that the database refuses a transaction, which a caller never hears.

    But late transactions of SQLite begin again by design.
    """
    can_retry = ErrorCodes.can_retry

    def noted(codes, error):
        if not was_late(error):
            journal.write("refused by the database", why=str(error.orig))
        return can_retry(codes, error)

    ErrorCodes.can_retry = noted
