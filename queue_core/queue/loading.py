"""What is the same in every load: rows become a table with the queue's columns, then the load runs.

A load uses the columns and settings that are known, and runs again if they have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from queue_core.catalog import queues
from queue_core.errors import BadOption, SchemaMismatch
from queue_core.queue.opened import OpenedQueue
from queue_core.segments.buffers import Buffer
from queue_core.segments.stager import remove_staged, removed_if_refused
from queue_core.support.trace_context import sending
from queue_core.values.backoff import check_wait
from queue_core.values.column_roles import expiring, holding, stamped
from queue_core.values.durations import Duration, in_seconds
from queue_core.values.ids import ids_in_order
from queue_core.values.model import QueueInfo, Staged
from queue_core.values.rows import Numbers
from queue_core.values.schema import (
    EXPIRES_AT,
    HOLD_UNTIL,
    TIMESTAMP,
    Loadable,
    conform,
    of_data_frame,
)
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting.joint_load import JointLoads
from queue_core.waiting.publish import Routed, RoutedLoad, check_several
from queue_core.waiting.smart.incoming import Stage
from queue_core.waiting.smart.load import ids_of_rows, of_rows

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check


def load(
    queue: OpenedQueue,
    loads: JointLoads,
    rows: Any,
    timeout: float | None,
    policy: Policy | Check | str | None,
    times: tuple[Duration | None, Duration | None],
) -> pa.Array:
    """Load rows in a transaction of this call, or of *loads*; the arguments are `Queue.load`'s."""
    end = None if timeout is None else time.monotonic() + timeout

    def run(info: QueueInfo, table: pa.Table) -> pa.Array:
        left = None if end is None else max(end - time.monotonic(), 0.0)
        given = _Rows(queue, info, table, policy)
        # Without a timeout only: a load with those of other threads may wait for longer.
        if given.smart is None and left is None and loads.joins(info, table):
            return loads(info, table, given.write)
        (ids,) = _publish([given], OnFull(timeout=left))
        return ids

    return load_each(queue, rows, times, run)


def load_into_several(
    queues_of: Mapping[str, OpenedQueue], rows: Mapping[str, Any], timeout: float | None
) -> dict[str, pa.Array]:
    """Load rows into several queues in one transaction; as `Store.load`."""
    end = None if timeout is None else time.monotonic() + timeout
    tables: dict[str, pa.Table] = {}
    listed: dict[int, Any] = {}  # By object: several queues may be given one iterator.
    for name, given in dict(rows).items():
        if isinstance(given, Buffer):
            raise BadOption(f"rows for queue {name!r}: load a buffer into one queue at a time")
        if id(given) not in listed:
            listed[id(given)] = _listed(queues_of[name], given)
        table = _table(queues_of[name], listed[id(given)])
        if table.num_rows:
            tables[name] = table
    with sending(tables) as tables:
        while True:
            found = {name: _by_now(queues_of[name], table) for name, table in tables.items()}
            check_several(info for info, _ in found.values())
            left = None if end is None else max(end - time.monotonic(), 0.0)
            try:
                parts = [_Rows(queues_of[name], *known) for name, known in found.items()]
                ids = _publish(parts, OnFull(timeout=left)) if parts else []
            except queues.SettingsChanged:
                for queue in queues_of.values():
                    queue.refresh()
            else:
                loaded = dict(zip(found, ids, strict=True))
                return {name: loaded.get(name, pa.array([], pa.int64())) for name in rows}


class _Rows:
    """
    The rows for one queue: a smart load, or segments.

    Segments are written again if a load waits for longer than vacuum leaves their files alone.
    """

    def __init__(
        self,
        queue: OpenedQueue,
        info: QueueInfo,
        table: pa.Table,
        policy: Policy | Check | str | None = None,
    ) -> None:
        self.opened = queue
        self.info = info
        self._table = table
        self.write: Stage = partial(queue.spread.staged, info)
        self.smart = of_rows(queue.catalog, queue.storage, info, table, self.write, policy)
        #: The segments that were written last; none for a smart load, which writes its own.
        self.staged: list[Staged] = []
        self._order: Numbers = np.empty(0, np.int64)

    def stage(self) -> None:
        """Write the segments."""
        if self.smart is None:
            self.staged[:], self._order = self.write(self._table)

    def ids(self, first_ids: list[int]) -> pa.Array:
        """Return the id of each row, by those of the first messages of the segments."""
        if self.smart is not None:
            return ids_of_rows(self.smart, first_ids)
        return ids_in_order(first_ids, self.staged, self._order)


def _publish(rows: Sequence[_Rows], when_full: OnFull) -> list[pa.Array]:
    """Load rows into their queues in one transaction; return the ids of the messages of each."""

    def stage() -> None:
        for each in rows:
            each.stage()

    queue = rows[0].opened
    loads = [Routed(each.info, each.staged, each.smart) for each in rows]
    load = RoutedLoad(queue.catalog, queue.storage, loads, when_full, again=stage)
    # A generator, which finds the segments when they are removed: by then, all are written.
    staged = (segment for each in rows for segment in each.staged)
    try:
        with removed_if_refused(queue.storage, staged):
            stage()
        first_ids = load.run()
    except queues.SettingsChanged:
        remove_staged(queue.storage, staged)
        raise
    assert first_ids is not None, "only a batch can have been loaded before"
    return [each.ids(first_ids[each.info.name]) for each in rows]


def load_each(
    queue: OpenedQueue,
    rows: Any,
    times: tuple[Duration | None, Duration | None],
    load: Callable[[QueueInfo, pa.Table], pa.Array],
    *,
    may_add: bool = True,
) -> pa.Array:
    """
    Load rows, an object or several, or a buffer; return the ids of the messages.

    *rows* and *times* (*ttl* and *hold*) are those of `Queue.load`. *load* gets a table with the
    columns of the queue, and raises `SettingsChanged` if the queue has other settings or columns by
    now. *may_add*: whether a column for *times* may be added.
    """
    if isinstance(rows, Buffer):
        with rows.loading(queue.name) as filled:
            return load_each(queue, filled, times, load, may_add=may_add)
    table = _table(queue, rows)
    if table.num_rows == 0:
        return pa.array([], pa.int64())
    with sending({queue.name: table}) as tables:
        (given,) = tables.values()
        while True:
            info, table = _by_now(queue, given)
            if times != (None, None):
                info, table = _with_times(queue, info, table, *times, may_add=may_add)
            try:
                return load(info, table)
            except queues.SettingsChanged:
                # Another process has given the queue a policy, a bound or another setting.
                queue.refresh()


def _table(queue: OpenedQueue, rows: Any) -> pa.Table:
    """Return rows, an object or several as a table; raises `BadOption` for a sideline."""
    queue.check_whole_queue("load")
    _, table = _conformed(queue, _listed(queue, rows))
    return table


def _by_now(queue: OpenedQueue, table: pa.Table) -> tuple[QueueInfo, pa.Table]:
    """Return the queue as it is known by now, and the table with its columns."""
    # Read `info` once: another thread may replace it meanwhile, even by an older one.
    info = queue.info
    if table.schema.equals(info.schema):
        return info, table
    # A restored catalog may lack columns for which these rows have no values.
    empty = {name for name in table.column_names if table.column(name).null_count == len(table)}
    return _conformed(queue, table.drop_columns(sorted(empty - {*info.schema.names})))


def _conformed(queue: OpenedQueue, rows: Loadable) -> tuple[QueueInfo, pa.Table]:
    """Return the queue, and rows with its columns; look for new ones before rows are refused."""
    known = queue.info
    try:
        return known, conform(rows, known.schema, queue.name)
    except SchemaMismatch:
        found = queue.follow()
        if found is known:
            raise
        return found, conform(rows, found.schema, queue.name)


def _listed(queue: OpenedQueue, rows: Any) -> Any:
    """Return messages as a list of dicts or a table, and any other rows as they are."""
    if isinstance(rows, pa.Table | pa.RecordBatch | str):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        # Some can be read only once.
        return of_data_frame(rows, queue.name)
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, list) and (not rows or isinstance(rows[0], dict)):
        return rows
    from queue_core.handling.objects.fields import is_message_class
    from queue_core.handling.objects.message_class import as_table

    if is_message_class(type(rows)):
        rows = [rows]
    if not isinstance(rows, Iterable):
        return rows
    listed = rows if isinstance(rows, list) else list(rows)
    table = as_table(listed, queue.name)
    return listed if table is None else table


def _with_times(
    queue: OpenedQueue,
    info: QueueInfo,
    table: pa.Table,
    ttl: Duration | None,
    hold: Duration | None,
    *,
    may_add: bool,
) -> tuple[QueueInfo, pa.Table]:
    """
    Fill the expiry and hold columns of the queue as *info* knows it, and of the table with it.

    Return both; a queue that has no such column gets one.
    """
    waits = in_seconds(ttl), in_seconds(hold)
    for name, given in zip(("ttl", "hold"), waits, strict=True):
        if given is not None:
            check_wait(name, given)
    now = queue.catalog.now()
    for name, seconds, role, default in (
        ("ttl", waits[0], expiring, EXPIRES_AT),
        ("hold", waits[1], holding, HOLD_UNTIL),
    ):
        if seconds is None:
            continue
        column = role(info.settings, info.schema)
        if column is None:
            # Others may have given it one.
            info = queue.follow()
            column = role(info.settings, info.schema)
        if name == "ttl" and info.settings.expires_at == "":
            raise BadOption(
                f"ttl={seconds:g}: by its setting expires_at, which is empty, no column says when "
                f"a message of queue {queue.name!r} expires; set expires_at to a column or to none"
            )
        at = now + int(seconds * 1e6)
        if column is None:
            if not may_add:
                raise BadOption(
                    f"{name}={seconds:g}: queue {queue.name!r} has no column for it, and your "
                    "transaction would have to add one; add it first: "
                    f"admin.add_columns(pa.schema([({default!r}, pa.timestamp('us', 'UTC'))]))"
                )
            info = queue.add_columns(pa.schema([pa.field(default, TIMESTAMP)]))
            column = role(info.settings, info.schema) or default
        if not table.schema.equals(info.schema):
            table = conform(table, info.schema, queue.name)
        table = stamped(table, column, at)
    return info, table
