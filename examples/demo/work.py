"""The demo's handlers, one for batches and one for single flights.

A flight that departed is done once its delay is published or the flight is noted. A flight that
never departed is a failure, and is not tried again.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queue_core import Queue, Retry, Store, batch_handler
from queue_core.handling.handler import BatchHandler, RowHandler

#: Published for each flight that departed: its delay in minutes, carrier and planned hour.
DELAYS = pa.schema(
    [
        ("number", pa.int64()),
        ("carrier", pa.string()),
        ("hour", pa.int64()),
        ("dep_delay", pa.int64()),
    ]
)
#: A second attempt would find the flight cancelled as well.
ONCE = Retry(attempts=1)


class NeverDeparted(Exception):
    """The flight was cancelled."""


class NoAircraft(NeverDeparted):
    """The flight was cancelled before it had an aircraft."""


def publishing_delays(path: str) -> BatchHandler:
    """Return a batch handler that publishes delays to the queue ``delays`` of the store *path*."""

    @batch_handler
    def handle(flights: pa.RecordBatch) -> pa.RecordBatch:
        departed = pc.is_valid(flights["dep_time"])
        delays(path).load(flights.filter(departed).select(DELAYS.names))
        outcome = pc.if_else(departed, "delete", "sideline")
        return pa.record_batch([outcome, why_not(flights)], ["outcome", "reason"])

    return handle


def noting_flights(folder: str) -> RowHandler:
    """Return a handler that notes each flight in *folder*, and raises if it never departed."""

    def handle(flight: dict[str, Any]) -> bool:
        note(folder, flight["_message_id"], flight["number"])
        if flight["dep_time"] is not None:
            return True
        if flight["tailnum"] is None:
            raise NoAircraft(f"none assigned at {flight['origin']}")
        raise NeverDeparted(f"cancelled at {flight['origin']}")

    return handle


def why_not(flights: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the reason that `noting_flights` gives for each flight that never departed."""
    why = pc.if_else(
        pc.is_null(flights["tailnum"]), "NoAircraft: none assigned", "NeverDeparted: cancelled"
    )
    return pc.binary_join_element_wise(why, flights["origin"], " at ")


@lru_cache
def delays(path: str) -> Queue:
    """Open the queue ``delays``, once in each process."""
    return Store.open(path).create_queue("delays", DELAYS, exist_ok=True)


def note(folder: str, message_id: int, number: int) -> None:
    """Note that a message was seen, without a buffer, so that a killed process has noted it."""
    os.write(_notes(folder, os.getpid()), struct.pack("=qq", message_id, number))


def noted(folder: Path) -> npt.NDArray[np.int64]:
    """Return the notes, one row each time a message was seen: its id and the flight's number."""
    notes = b"".join(file.read_bytes() for file in sorted(folder.glob("*.notes")))
    return np.frombuffer(notes, np.int64).reshape(-1, 2)


@lru_cache
def _notes(folder: str, process: int) -> int:
    path = Path(folder, f"{process}.notes")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
