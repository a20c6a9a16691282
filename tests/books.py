"""The books of a store: where every message is, by its rows and by the counters, which must agree.

Everything is read from the tables themselves, in one transaction, and not through the views.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from sqlalchemy import Connection, select

from queue_core import Store
from queue_core.catalog.slices.id_map import logical
from queue_core.catalog.tables import (
    counters,
    files,
    id_map,
    log_slices,
    logs,
    schemas,
    segments,
    shard_locks,
    shards,
    slices,
)
from queue_core.segments.format import decode, unpack_chunks
from queue_core.values.ids import first_id
from queue_core.values.model import Magazine, State
from queue_core.values.rows import Rows
from queue_core.values.schema import COMPACTED, deserialize

_TABLES = (
    *(segments, id_map, files, slices, shards, shard_locks, counters, schemas),
    *(log_slices, logs),
)
#: Counters of what has left a shard.
_NO_COUNTS = ("queue_id", "magazine", "shard", "seal", "log_of", "cursor", "cursor_end")
_GONE = ("deleted", "expired", "replaced", "dropped")
_LEFT = ("deleted", "sidelined", "shovelled", "swept", "expired", "replaced", "dropped")

#: (queue, magazine, shard)
Place = tuple[int, int, int]


@dataclass(frozen=True)
class Books:
    """Where every message of a store is."""

    #: The magazine and the state of each message, by its id; with subscriptions, in one of them.
    messages: dict[int, tuple[Magazine, State]]
    #: The same of each queue, by its id.
    of_queues: dict[int, dict[int, tuple[Magazine, State]]]
    #: Messages that were loaded and are deleted or expired, by the counters.
    deleted: int

    def ids(self, magazine: Magazine | None = None, state: State | None = None) -> set[int]:
        """The messages in a magazine and in a state."""
        return {
            message
            for message, (its_magazine, its_state) in self.messages.items()
            if magazine in (None, its_magazine) and state in (None, its_state)
        }


def audit(store: Store, *, spoiled: bool = False) -> Books:
    """
    Check the books and return them.

    Every message is in one slice and at one place; every slice has a segment, and every segment a
    file, which is whole unless *spoiled* says that the test has seen to that; and what was loaded
    is waiting, in flight, deleted or damaged, counted both ways.
    """
    with store.catalog.read() as connection:
        tables = {
            table.name: connection.execute(select(table)).mappings().all() for table in _TABLES
        }
        # Within the transaction, so that nothing that is named now can be removed meanwhile.
        _check_segments(store, tables)
        if not spoiled:
            _check_contents(store, connection, tables)
        of_queues = {}
        for queue_id, rows in _messages(tables).items():
            ids = logical(connection, np.array(list(rows), np.int64)).tolist()
            of_queues[queue_id] = dict(zip(ids, rows.values(), strict=True))
            assert len(of_queues[queue_id]) == len(rows), "a message is in two segments"
    _check_logs(tables)
    messages = {message: at for each in of_queues.values() for message, at in each.items()}
    return Books(messages, of_queues, _check_counters(tables))


def _check_logs(tables: dict[str, Any]) -> None:
    """The logs are without gaps up to the last loaded message, and cursors stand in them."""
    logged = {_place(row)[::2]: row["logged"] for row in tables["shards"] if not row["magazine"]}
    ends = {(row["queue_id"], row["shard"]): row["start"] for row in tables["logs"]}
    begins = dict(ends)
    named: Counter[int] = Counter()
    for row in sorted(tables["log_slices"], key=lambda row: row["first_offset"]):
        at = (row["queue_id"], row["shard"])
        assert row["first_offset"] == ends[at], (
            f"the log {at} has a gap or an overlap at {ends[at]}"
        )
        rows = Rows.from_bytes(row["row_start"], row["row_stop"], row["bitmap"])
        assert len(rows) == row["count"] > 0
        ends[at] += row["count"]
        named[row["segment_id"]] += 1
    for at, end in ends.items():
        assert end == logged[at], f"the log {at} ends at {end}, and {logged[at]} were loaded"
    counts = {row["id"]: row["log_rows"] for row in tables["segments"]}
    assert {at: count for at, count in counts.items() if count} == named
    for row in tables["shard_locks"]:
        # One that has reached its end may be left behind by the log.
        if row["log_of"] and not 0 < row["cursor_end"] <= row["cursor"]:
            at = (row["log_of"], row["shard"])
            assert begins[at] <= row["cursor"] <= ends[at], (
                f"the cursor of {_place(row)} is outside"
            )


def leftover_files(store: Store) -> set[str]:
    """Files in the storage that no segment is in."""
    with store.catalog.read() as connection:
        named = set(connection.scalars(select(segments.c.file)))
    return set(store.storage.list()) - named


def _check_segments(store: Store, tables: dict[str, Any]) -> None:
    named = {row["segment_id"] for row in tables["slices"]}
    known = {row["id"]: row for row in tables["segments"]}
    assert named <= known.keys(), f"slices without a segment: {named - known.keys()}"
    live = {row["location"] for row in tables["files"] if row["state"] == "live"}
    located = {row["file"] for row in tables["segments"] if row["file"]}
    assert live == located, f"live files without a segment, or the reverse: {live ^ located}"
    there = store.storage.list().keys()
    assert located <= there, f"segments without a file: {located - there}"


def _check_contents(store: Store, connection: Connection, tables: dict[str, Any]) -> None:
    damaged = {r["segment_id"] for r in tables["slices"] if r["state"] == int(State.DAMAGED)}
    written = {(r["queue_id"], r["version"]): deserialize(r["arrow"]) for r in tables["schemas"]}
    compacted = {row["segment_id"] for row in tables["id_map"]}
    for row in tables["segments"]:
        schema = written[row["queue_id"], row["schema_version"]]
        if row["id"] in compacted - damaged:
            rows = _on_file(store, row, pa.schema([*schema, *COMPACTED]))
            _check_kept(connection, tables, row, rows.columns[-1], rows.column("_message_id"))
        elif row["id"] not in damaged:
            assert _on_file(store, row, schema).num_rows == row["rows"]


def _check_kept(
    connection: Connection,
    tables: dict[str, Any],
    segment: Any,
    numbers: pa.ChunkedArray,
    ids: pa.ChunkedArray,
) -> None:
    """The rows of a compacted segment are the messages that the catalog says they are."""
    on_file = dict(zip(numbers.to_pylist(), ids.to_pylist(), strict=True))
    assert list(on_file) == sorted(on_file)
    for row in tables["slices"]:
        if row["segment_id"] == segment["id"]:
            named = Rows.from_bytes(row["row_start"], row["row_stop"], row["bitmap"]).numbers()
            told = logical(connection, named.astype(np.int64) + first_id(segment["id"]))
            assert [on_file[number] for number in named.tolist()] == told.tolist()


def _on_file(store: Store, row: Any, schema: pa.Schema) -> pa.Table:
    """The rows of a segment, its checksums verified."""
    data = row["data"]
    if row["file"] is not None:
        with store.storage.opened(row["file"]) as handle:
            data = handle.read()
    chunks = unpack_chunks(row["chunks"])
    buffer = pa.py_buffer(data)
    return pa.Table.from_batches(
        decode(buffer.slice(c.offset, c.length), c, schema, str(row["file"])) for c in chunks
    )


def _messages(tables: dict[str, Any]) -> dict[int, dict[int, tuple[Magazine, State]]]:
    pointers = {_place(row): row["load_pointer"] for row in tables["shards"]}
    sizes = {row["id"]: row["rows"] for row in tables["segments"]}
    found: dict[int, dict[int, tuple[Magazine, State]]] = defaultdict(dict)
    taken: dict[tuple[int, int], BitMap] = defaultdict(BitMap)
    places: dict[Place, BitMap] = defaultdict(BitMap)
    for row in tables["slices"]:
        rows = Rows.from_bytes(row["row_start"], row["row_stop"], row["bitmap"])
        bits = rows.as_bitmap()
        state = State(row["state"])
        assert len(bits) == row["count"] > 0, f"slice {row['id']} counts itself wrongly"
        assert (bits.min(), bits.max() + 1) == (rows.start, rows.stop)
        assert rows.stop <= sizes[row["segment_id"]]
        held = row["ticket"] is not None
        assert held == (row["consumer_id"] is not None)
        by = f"slice {row['id']} is {state.name} by ticket {row['ticket']}"
        assert state is State.DAMAGED or held == (state is State.FIRED), by
        twice = taken[row["queue_id"], row["segment_id"]] & bits
        assert not twice, f"rows {list(twice)} of segment {row['segment_id']} are in two slices"
        taken[row["queue_id"], row["segment_id"]] |= bits
        shift = row["position"] - rows.start
        here = BitMap(number + shift for number in bits)
        assert not places[_place(row)] & here, f"slice {row['id']} stands where another one is"
        places[_place(row)] |= here
        assert here.max() < pointers[_place(row)], f"slice {row['id']} is behind the load pointer"
        first = first_id(row["segment_id"])
        found[row["queue_id"]] |= dict.fromkeys(
            (first + number for number in bits), (Magazine(row["magazine"]), state)
        )
    return found


def _check_counters(tables: dict[str, Any]) -> int:
    counted: dict[Place, Counter[str]] = defaultdict(Counter)
    for name in ("shards", "shard_locks", "counters"):
        for row in tables[name]:
            counted[_place(row)].update({k: v for k, v in row.items() if k not in _NO_COUNTS})
    there: dict[Place, Counter[State]] = defaultdict(Counter)
    for row in tables["slices"]:
        there[_place(row)][State(row["state"])] += row["count"]
    totals: Counter[str] = Counter()
    for place, count in counted.items():
        states = there[place]
        left = sum(count[name] for name in _LEFT)
        assert count["loaded"] == left + states.total(), f"{place}: {count}, and there are {states}"
        in_flight = count["fired"] - count["reloaded"] - left
        assert in_flight == states[State.FIRED], f"{place}: {count}, and there are {states}"
        assert count["damaged"] == states[State.DAMAGED]
        assert min(count.values()) >= 0
        assert count["fire_pointer"] <= count["load_pointer"]
        totals.update(count)
        totals.update({state.name: number for state, number in states.items()})
    # A message that changes its magazine is loaded once more there.
    moved = totals["sidelined"] + totals["shovelled"] + totals["swept"]
    gone = sum(totals[name] for name in _GONE)
    here = totals["LOADED"] + totals["FIRED"] + totals["DAMAGED"]
    assert totals["loaded"] - moved == here + gone
    return gone


def _place(row: Any) -> Place:
    return row["queue_id"], row["magazine"], row["shard"]


def in_order(store: Store) -> None:
    """Every slice and every row of a log has its segment, and no file is left over but garbage."""
    audit(store)
    assert store.admin.fsck(deep=True).to_pylist() == []
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
