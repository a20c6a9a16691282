"""Columns that are added to all queues while processes and queries use them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from queue_core import IgnisError, Store
from queue_core.values.address import Address
from tests.soak.nemesis import Fault
from tests.soak.workload import SCHEMA, added

#: Columns that are added to a queue at most.
_MOST = 30


@dataclass(eq=False)
class Growth(Fault):
    """
    Each queue gets one more column, of which producers hear when they open the queue again.

    A value that somebody hands on without the column counts as an altered message.
    """

    name, weight, shared = "growth", 0.2, True

    address: Address
    _columns: int = 0

    def possible(self) -> bool:
        return self._columns < _MOST

    def begin(self) -> str | None:
        with suppress(IgnisError), Store(self.address, create=False) as store:
            # A query copies from `in` to `out`, which needs the column first.
            for name in sorted(store.queues(), reverse=True):
                queue = store.queue(name)
                if queue.info.log_of:
                    # It has the columns of the queue that it reads.
                    continue
                self._columns = len(queue.schema) - len(SCHEMA)
                queue.admin.add_columns(pa.schema([added(self._columns)]))
        return None
