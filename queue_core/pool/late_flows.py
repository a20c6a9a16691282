"""Late flows: the values of a fair queue whose last call took longer than its time limit.

When the service of one tenant hangs, all workers would soon wait for it. So a pool handles one
message at a time of each late value, in a batch of its own, and at most half of its workers do so.
Firings leave the others out. A value is late no more when the call for such a message ends in time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.values.failure_kinds import TIMEOUT, UNREADABLE
from queue_core.values.outcomes import UNHANDLED

if TYPE_CHECKING:
    from queue_core.selector import NoneOf


#: Kinds of messages whose call took too long, or that had none.
_NOT_IN_TIME = (TIMEOUT, UNHANDLED, UNREADABLE)


class Screened(NamedTuple):
    """Fired messages, divided by what happens to them next."""

    #: They are handled together, as always.
    together: pa.Table
    #: Each is handled in a batch of its own.
    alone: pa.Table
    #: They are reloaded.
    rest: pa.Table


class LateFlows:
    """The late values of a column in one process. Thread-safe. *workers*: their number."""

    def __init__(self, column: str, workers: Callable[[], int]) -> None:
        self.column = column
        self._workers = workers
        self._lock = threading.Lock()
        #: The late values, each with the id of its message that is in hand.
        self._in_hand: dict[Any, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self._in_hand)

    def left_out(self) -> NoneOf | None:
        """Return what the next firing leaves out; None if it takes any message."""
        with self._lock:
            has_room = self._room > 0
            values = [
                value for value, id in self._in_hand.items() if id is not None or not has_room
            ]
        if not values:
            return None
        # Not at the top: it takes long to import, and few pools have late values.
        from queue_core.selector import NoneOf

        return NoneOf(self.column, frozenset(values))

    def screened(self, messages: pa.Table) -> Screened:
        """Divide fired messages. Those to be handled alone are in hand from now on."""
        values = messages.column(self.column)
        with self._lock:
            is_late = pc.is_in(values, value_set=pa.array(list(self._in_hand), values.type))
            late = messages.filter(is_late)
            column = late.column(self.column).combine_chunks()
            encoded = column.dictionary_encode(null_encoding="encode")
            codes, rows = np.unique(encoded.indices.to_numpy(), return_index=True)
            flows = encoded.dictionary.take(pa.array(codes)).to_pylist()
            free = [at for at, flow in enumerate(flows) if self._in_hand[flow] is None]
            chosen = pa.array(rows[free[: max(self._room, 0)]], pa.int64())
            ids = late.column("_message_id").take(chosen)
            for at, id in zip(free, ids.to_pylist(), strict=False):
                self._in_hand[flows[at]] = id
        rest = late.filter(pc.invert(pc.is_in(late.column("_message_id"), value_set=ids)))
        return Screened(messages.filter(pc.invert(is_late)), late.take(chosen), rest)

    def ended(self, messages: pa.RecordBatch, kinds: pa.Array) -> bool:
        """
        Note the kinds of failures of messages that no worker has any more.

        Returns whether other messages can be fired now.
        """
        if self.column not in messages.schema.names:
            # They were fired while the queue was fair by another column.
            return False
        ids, values = messages.column("_message_id"), messages.column(self.column)
        changed = False
        with self._lock:
            for value, id in list(self._in_hand.items()):
                at = -1 if id is None else pc.index(ids, id).as_py()
                if at < 0:
                    continue
                changed = True
                if kinds[at].as_py() in _NOT_IN_TIME:
                    self._in_hand[value] = None
                else:
                    del self._in_hand[value]
            for value in pc.unique(values.filter(pc.equal(kinds, TIMEOUT))).to_pylist():
                self._in_hand.setdefault(value, None)
        return changed

    @property
    def _room(self) -> int:
        """How many more late values may have a message in hand."""
        busy = sum(id is not None for id in self._in_hand.values())
        return max(self._workers() // 2, 1) - busy
