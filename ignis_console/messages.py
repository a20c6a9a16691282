"""One message with its whole life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from ignis_console.sideline import KeptTrace, trace_of
from queue_core.catalog import queues
from queue_core.catalog.holders import holders
from queue_core.catalog.holders.consumers import names_of
from queue_core.catalog.records import failures
from queue_core.catalog.slices import id_map
from queue_core.catalog.slices.conditions import of_few_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.errors import DamagedSegment
from queue_core.queue.queue import Queue
from queue_core.store import Store
from queue_core.values.due import NEVER
from queue_core.values.fingerprints import fingerprints
from queue_core.values.ids import IdSet
from queue_core.values.model import Slice
from queue_core.values.schema import METADATA
from queue_core.values.valid_text import readable
from queue_core.watching import views
from queue_core.watching.wording import moment


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of a message."""

    failed_at: datetime
    kind: str
    reason: str | None
    attempt: int
    consumer: str | None
    #: The end of the trace of its exception, or of that of a failure that is alike.
    trace: KeptTrace | None = None


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message is now."""

    magazine: str
    #: ``waiting``, ``in flight`` or ``damaged``.
    state: str
    shard: int
    attempts: int
    deliveries: int
    loaded_at: datetime | None
    #: When it entered this magazine.
    moved_at: datetime | None
    fired_at: datetime | None
    #: The consumer that holds it, and its ticket.
    holder: str | None
    ticket: int | None
    #: When it returns from the sideline to main.
    due_at: datetime | None
    dead: bool


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """Something that happened to a message."""

    at: datetime
    text: str
    #: The consumer, and the failure if it is one.
    consumer: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """A message: where it is, what it contains, and its failures."""

    message_id: int
    #: None: it is gone.
    place: MessagePlace | None
    #: Its columns; None: it is gone, or cannot be read.
    payload: Mapping[str, Any] | None
    failures: tuple[Failure, ...]
    #: All that is known to have happened, in order of time.
    events: tuple[MessageEvent, ...]


def life(store: Store, queue: str, message_id: int) -> Life:
    """Return what is known of a message; raises `NoSuchQueue`, or `BadOutcome`: a foreign id."""
    chosen = store.queue(queue).choose([message_id])
    with store.catalog.read() as connection:
        info = queues.find(connection, queue)
        found = _slice_of(connection, info.id, message_id)
        place = None if found is None else _place(connection, found)
        log = failures.of_queue(connection, info.id)
        kept = views.read(connection, "traces", info, store.storage.uri)
    payload: dict[str, Any] | None = None
    if place is not None and place.state != "damaged":
        try:
            rows = readable(chosen.rows()).to_pylist()
        except DamagedSegment:
            rows = []
        if rows:
            metadata = set(METADATA.names)
            payload = {name: value for name, value in rows[0].items() if name not in metadata}
    own = log.filter(pc.equal(log.column("message_id"), message_id))
    names = [field.name for field in fields(Failure) if field.name != "trace"]
    alike = fingerprints(own.column("kind"), own.column("reason")).to_pylist()
    failed = tuple(
        Failure(**row, trace=trace_of(kept, row["kind"], fingerprint))
        for row, fingerprint in zip(own.select(names).to_pylist(), alike, strict=True)
    )
    return Life(message_id, place, payload, failed, events(place, failed))


def in_flight(queue: Queue, count: int, selector: str | None, consumer: str | None) -> pa.Table:
    """Return messages in flight, at most *count*, as `Queue.browse`, with their ``_consumer``."""
    with queue.store.catalog.read() as connection:
        held = holders.held(connection, queue.info.id, consumer)
        names = names_of(connection, {each.consumer_id for each in held if each.consumer_id})
        ids = id_map.ids_of(connection, [(each, each.rows) for each in held])
    found = ids if selector is None else queue.choose(ids, selector).ids.to_numpy()
    rows = queue.choose(found[:count]).rows().sort_by("_fired_at")
    of = np.repeat([each.consumer_id for each in held], [len(each.rows) for each in held])
    order = np.argsort(ids)
    at = order[np.searchsorted(ids[order], rows.column("_message_id").to_numpy())]
    return rows.append_column("_consumer", pa.array([names.get(of[each]) for each in at]))


def events(place: MessagePlace | None, failed: Sequence[Failure]) -> tuple[MessageEvent, ...]:
    """Return what happened to a message, in order of time."""
    found = [
        MessageEvent(each.failed_at, f"Attempt {each.attempt + 1} ended", each.consumer, each)
        for each in failed
    ]
    if place is not None:
        if place.loaded_at is not None:
            found.append(MessageEvent(place.loaded_at, "Loaded"))
        if place.fired_at is not None and not _is_of_return(place):
            text = "Fired" if place.holder else "Fired last"
            found.append(MessageEvent(place.fired_at, text, place.holder))
        if place.moved_at is not None and place.moved_at != place.loaded_at:
            found.append(MessageEvent(place.moved_at, f"Came to {place.magazine}"))
    # Of events of one moment, a load comes first, and a failure after the move that it caused.
    by_time = sorted(found, key=lambda each: (each.at, each.text != "Loaded", bool(each.failure)))
    return tuple(by_time)


def _is_of_return(place: MessagePlace) -> bool:
    """Return whether its last firing was only its return from the sideline, which counts as one."""
    moved, loaded = place.moved_at, place.loaded_at
    if place.holder is not None or place.magazine != "main" or moved is None or moved == loaded:
        return False
    return place.fired_at is not None and place.fired_at <= moved


def _slice_of(connection: Connection, queue_id: int, message_id: int) -> Slice | None:
    located = id_map.located(connection, [queue_id], IdSet.of([message_id]))
    pieces = fetch(connection, *of_few_segments(queue_id, located.segments))
    return next((piece for piece in pieces if piece.rows & located.rows(piece.segment_id)), None)


def _place(connection: Connection, piece: Slice) -> MessagePlace:
    name = None
    if piece.consumer_id is not None:
        name = names_of(connection, [piece.consumer_id]).get(piece.consumer_id)
    dead = piece.due_at == NEVER
    state = "in flight" if piece.consumer_id is not None else "waiting"
    return MessagePlace(
        magazine=piece.magazine.name.lower(),
        state="damaged" if piece.damaged else state,
        shard=piece.shard,
        attempts=piece.attempts,
        deliveries=piece.deliveries,
        loaded_at=moment(piece.loaded_at),
        moved_at=moment(piece.moved_at),
        fired_at=moment(piece.fired_at),
        holder=name,
        ticket=piece.ticket,
        due_at=None if dead else moment(piece.due_at),
        dead=dead,
    )
