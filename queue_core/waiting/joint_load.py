"""Joint loads: small loads of several threads of one process, in one transaction.

A durable commit costs the same for one message as for a hundred. So a thread that finds another one
at work waits, and the next commit takes the loads of all threads that wait by then; the rows for
one queue become one segment. A thread that is alone waits for nobody. Each load is whole, in the
order of its rows. If a joint load is refused, its loads are made one by one, and only the one at
fault fails.

Only loads that depend on no other message are joined: without a policy, de-duplication, bounds and
a transaction of the caller.

Crash: as of any load, for all loads of the transaction together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.queues import SettingsChanged
from queue_core.errors import CatalogUnavailable, IgnisError, Unavailable
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.support.coalescing import Coalescer
from queue_core.values.ids import ids_in_order
from queue_core.values.model import QueueInfo, Staged
from queue_core.values.rows import Numbers
from queue_core.waiting.bounded_load import commit_load, load_bounded

#: Larger loads are not joined: for them, the commit is a small part of the cost.
JOINED_BYTES = 64 << 10

#: Returns rows as segments, and the number of each row, counted over all segments.
_Stage: TypeAlias = Callable[[pa.Table], tuple[list[Staged], Numbers]]


class _Load(NamedTuple):
    """The load of one thread."""

    queue: QueueInfo
    rows: pa.Table
    stage: _Stage
    #: The number of its thread.
    thread: int


class _Part(NamedTuple):
    """Loads into one queue, staged together."""

    loads: Sequence[_Load]
    staged: list[Staged]
    order: Numbers

    def ids(self, first_ids: Sequence[int]) -> list[pa.Array]:
        """Return the message ids of each load."""
        ids = ids_in_order(first_ids, self.staged, self.order)
        parts, start = [], 0
        for load in self.loads:
            parts.append(ids.slice(start, load.rows.num_rows))
            start += load.rows.num_rows
        return parts


#: The ids of a load, or why it failed.
_Result: TypeAlias = pa.Array | BaseException


class JointLoads:
    """The small loads of one process into one store."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage
        self._parallel = dialect.of(catalog.engine).writes_in_parallel
        #: By process, since the threads of a parent lead nothing in its child, and by queue.
        self._by_queue: dict[tuple[int, int], Coalescer[_Load, _Result]] = {}

    def joins(self, queue: QueueInfo, rows: pa.Table) -> bool:
        """Return whether rows may be loaded together with those of other threads."""
        settings = queue.settings
        return not settings.is_bounded and rows.nbytes <= JOINED_BYTES

    def __call__(self, queue: QueueInfo, rows: pa.Table, stage: _Stage) -> pa.Array:
        """Load rows, by this thread or by another one; return the message ids."""
        # Parallel writers lock the shards of one queue in order; across queues, there is no order.
        key = (os.getpid(), queue.id if self._parallel else 0)
        load = self._by_queue.get(key)
        if load is None:
            # Of several threads that come first, one adds it.
            load = self._by_queue.setdefault(key, Coalescer(self._load_all, threading.RLock()))
        result = load(_Load(queue, rows, stage, threading.get_ident()))
        if isinstance(result, BaseException):
            raise result
        return result

    def _load_all(self, loads: Sequence[_Load]) -> list[_Result]:
        """Return the result of each load."""
        groups = _groups(loads)
        if len(groups) > 1 and self._parallel:
            # Threads know the queue in different states: load for each state separately.
            results: list[_Result] = [None] * len(loads)
            for group in groups.values():
                of_group = self._load_all([loads[at] for at in group])
                for at, result in zip(group, of_group, strict=True):
                    results[at] = result
            return results
        try:
            return list(self._commit(loads, groups.values()))
        except IgnisError as error:
            if len(loads) == 1 or isinstance(error, Unavailable) or error.outcome_unknown:
                return [error] * len(loads)
            # Nothing was changed, and one of them is at fault.
            return [result for load in loads for result in self._load_all([load])]
        except SettingsChanged as error:
            # Nothing was changed, and each load begins again. Others may be loaded by now.
            return [error] * len(loads)
        except BaseException as error:  # noqa: BLE001 - its own thread raises it
            here = threading.get_ident()
            return [error if load.thread == here else _in_doubt() for load in loads]

    def _commit(self, loads: Sequence[_Load], groups: Collection[Sequence[int]]) -> list[pa.Array]:
        """Load in one transaction; *groups*: the indexes of loads that are staged together."""
        parts: list[_Part] = []
        # A generator, which finds the segments when they are removed: by then, all are written.
        staged = (segment for part in parts for segment in part.staged)
        with removed_if_refused(self._storage, staged, SettingsChanged):
            for group in groups:
                parts.append(_staged([loads[at] for at in group]))

            def work(connection: Connection) -> list[list[int]]:
                return [
                    load_bounded(connection, self._storage, part.loads[0].queue, part.staged)
                    for part in parts
                ]

            first_ids = commit_load(self._catalog, work)
        ids: list[pa.Array] = [None] * len(loads)
        for group, part, first in zip(groups, parts, first_ids, strict=True):
            for at, own in zip(group, part.ids(first), strict=True):
                ids[at] = own
        return ids


def _groups(loads: Sequence[_Load]) -> dict[tuple[int, str | None, pa.Schema], list[int]]:
    """Return the indexes of the loads whose rows can be one segment, by what they share."""
    groups: dict[tuple[int, str | None, pa.Schema], list[int]] = {}
    for at, load in enumerate(loads):
        key = (load.queue.id, load.queue.stored_settings, load.rows.schema)
        groups.setdefault(key, []).append(at)
    return groups


def _staged(loads: Sequence[_Load]) -> _Part:
    rows = loads[0].rows if len(loads) == 1 else pa.concat_tables([load.rows for load in loads])
    return _Part(loads, *loads[0].stage(rows))


def _in_doubt() -> CatalogUnavailable:
    error = CatalogUnavailable(
        "the thread that loaded these messages together with its own has failed; they may be "
        "loaded or not: look before you load them again"
    )
    error.outcome_unknown = True
    return error
