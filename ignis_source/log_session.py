"""
The driver's side of a query that reads logs, as a stream or as a batch.

It writes nothing to the catalog: only Spark's checkpoint says where the query is. So the offsets
contain what is needed to read a batch again with the same rows, or to notice that they differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil
from typing import Any, TypeAlias

from pyspark.sql.types import StructType
from sqlalchemy import Connection

from ignis_source.firing import IDLE_SECONDS
from ignis_source.log_options import EARLIEST, LATEST, Said
from ignis_source.offset import LogOffset, LogRange
from ignis_source.options import SourceOptions
from ignis_source.partition import LogPartition, condition_of, function_of
from ignis_source.queue_refresh import located, open_queues
from ignis_source.requests import check_selection
from ignis_source.schema import check_columns, columns_of
from queue_core.catalog import dialect, queues
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.poller import Poller, Watch
from queue_core.catalog.records.restored import restored_at
from queue_core.catalog.slices import log_ranges, read_plans, replay_check
from queue_core.catalog.slices.log_ranges import Mark, Reach, Shard
from queue_core.errors import BadOption, BadSelector, OffsetsLost
from queue_core.selection.fifo_scan import decided_by_stats
from queue_core.selection.scan import SliceScan
from queue_core.values.model import Magazine, QueueInfo, Slice, check_roots
from queue_core.values.names import listed
from queue_core.values.plan import in_proportion
from queue_core.values.plan import partitions as spread
from queue_core.values.schema import LOG_METADATA, METADATA, output_schema

#: Slices of one shard, each with the offset of its first message.
Pieces: TypeAlias = Sequence[tuple[int, Slice]]


class LogSession:
    """The store and the queues of a query that reads logs."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        assert options.log is not None
        self._options, self._log = options, options.log
        self.store = StoreHandle(options.address)
        try:
            options = located(self.store, options)
            if options.magazine is not Magazine.MAIN:
                raise BadOption("ignis source: a sideline has no log: name the queue itself")
            self.queues = open_queues(self.store, options.queues)
            check_roots(self.queues)
            check_columns(options, wanted, columns_of(self.queues[0], options))
            if options.selector is not None:
                check_selection(self.queues, options)
                self._check_logged(options.selector)
            for queue in self.queues:
                self._selector(queue)
        except BaseException:
            self.store.close()
            raise
        watch = Watch(self.store.catalog, lambda: [queue.root for queue in self.queues])
        # In a store that others keep busy, five empty looks a second are enough.
        self._poller = Poller(watch, first=0.2, last=0.2, blind=IDLE_SECONDS)
        #: What the logs had at the last look.
        self.reached: Mapping[Shard, Reach] = {}
        self._horizon: Mapping[Shard, Reach] | None = None
        #: Whether the offset of the checkpoint was compared with the logs.
        self._compared = False

    def set_horizon(self) -> None:
        """From now on read only what the logs have at this moment."""
        with self.store.catalog.read() as connection:
            self._horizon = self._look(connection)

    def first(self) -> dict[str, Any]:
        """Return the offset at which a new query begins."""
        return self.initial().to_json()

    def after(self, start: dict[str, Any], *, everything: bool) -> dict[str, Any]:
        """Return the offset of the next batch, or *start*; with *everything*, no limit applies."""
        begin = LogOffset.from_json(start)
        found = self.next(begin, None if everything else self._log.most)
        return start if found is begin else found.to_json()

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LogPartition]:
        """Return the messages of the batch that *end* describes."""
        return [] if start == end else self.plan(LogOffset.from_json(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Note nothing: only Spark's checkpoint says where the query is."""

    def report(self) -> dict[str, Any]:
        """Return the ends of the logs."""
        ends: dict[str, Any] = {}
        for (queue, shard), each in sorted(self.reached.items()):
            ends.setdefault(queue, {})[str(shard)] = each.end
        return ends

    def initial(self) -> LogOffset:
        """Return the offset at which a new query begins."""
        with self.store.catalog.read() as connection:
            begins = self._places(connection, self._log.starting, self._log.since, LATEST)
            return self._range(connection, begins, begins, {})

    def next(self, start: LogOffset, most: int | None) -> LogOffset:
        """
        Return the next batch, of *most* messages; *start* itself if there are none.

        Without messages, it waits a moment, so that Spark does not call it eighty times a second.
        """
        start.check_queues(self._options.queues)
        end = time.monotonic() + self._options.idle_wait
        while self._horizon is not None or self._poller.wait(end):
            self._poller.pause()
            with self.store.catalog.read() as connection:
                found = self._next(connection, start, most)
            if found is not start:
                # A limit may have left some messages.
                self._poller.look_at_once()
                return found
            self._poller.looked()
            if self._horizon is not None or time.monotonic() >= end:
                break
        return start

    def plan(self, batch: LogOffset) -> list[LogPartition]:
        """Return the messages of a batch; the same at each call."""
        batch.check_queues(self._options.queues)
        with self.store.catalog.read() as connection:
            there = self._look(connection)
            has = {at: each for at, each in batch.ranges.items() if each.begin < each.end}
            self._within({at: each.begin for at, each in has.items()}, there, begun=True)
            self._within({at: each.end for at, each in has.items()}, there, begun=True)
            self._compare(connection, batch)
            return self._partitions(connection, batch)

    def batch(self) -> list[LogPartition]:
        """Return the messages of a batch read."""
        log = self._log
        with self.store.catalog.read() as connection:
            begins = self._places(connection, log.starting, log.since, EARLIEST)
            ends = self._places(connection, log.ending, log.until, LATEST)
            ranges = {at: LogRange(begin, ends[at]) for at, begin in begins.items()}
            return self._partitions(connection, LogOffset(ranges))

    def close(self) -> None:
        """Close the store. Spark does not call this; tests do."""
        self._poller.close()
        self.store.close()

    def _look(self, connection: Connection) -> Mapping[Shard, Reach]:
        """Return what the logs have; raises `NoSuchQueue`, or `BadOption` if there is no log."""
        self.reached = log_ranges.reach(connection, self.queues)
        for queue in self.queues:
            if not any(name == queue.name for name, _ in self.reached):
                root = queues.by_id(connection, queues.present(connection, queue).root).name
                raise BadOption(
                    f"ignis source: queue {root!r} has no log: set log on it, for example "
                    "log='7 days' in store.queue(…).admin.change_settings; it then keeps what is "
                    "loaded from that moment on"
                )
        return self.reached

    def _places(
        self, connection: Connection, said: Said | None, since: int | None, default: int
    ) -> dict[Shard, int]:
        """Return the offsets that options say."""
        there = self._look(connection)
        if since is not None:
            return log_ranges.since(connection, self.queues, there, since * 1000)
        if said is None or isinstance(said, int):
            said = dict.fromkeys(there, default if said is None else said)
        if said.keys() != there.keys():
            raise BadOption(
                "ignis source: startingOffsets and endingOffsets need an offset for each shard of "
                "each queue, which are "
                f"{', '.join(f'{name}: {shard}' for name, shard in there)}; -2 is the earliest "
                "offset, and -1 the latest"
            )
        meant = {
            at: {EARLIEST: each.start, LATEST: each.end}.get(said[at], said[at])
            for at, each in there.items()
        }
        for (name, shard), place in meant.items():
            if place > there[name, shard].end:
                raise BadOption(
                    f"ignis source: offset {place} is after the latest one of shard {shard} of "
                    f"queue {name!r}, {there[name, shard].end}"
                )
        return self._within(meant, there)

    def _within(
        self, places: Mapping[Shard, int], there: Mapping[Shard, Reach], *, begun: bool = False
    ) -> dict[Shard, int]:
        """
        Return offsets within the log; trimmed ones move to its start, if the options allow it.

        Raises `OffsetsLost`. *begun*: a logged batch begins at them, so they must not move.
        """
        for at, place in places.items():
            start, end = there.get(at, Reach(0, 0))
            if place > end:
                raise _another(at, f"ends at offset {end}, and not at {place} or later, in")
            if place < start and (begun or self._log.fails_on_loss):
                raise OffsetsLost(
                    f"the log of queue {at[0]!r}: the messages at offsets {place} to {start - 1} "
                    f"of shard {at[1]} were trimmed before the query has read them; "
                    + (_BEGUN if begun else _NOT_BEGUN)
                )
        return {at: max(places.get(at, each.start), each.start) for at, each in there.items()}

    def _next(self, connection: Connection, start: LogOffset, most: int | None) -> LogOffset:
        there = self._look(connection)
        ended = {at: each.end for at, each in start.ranges.items()}
        begins = self._within(ended, there)
        upto = self._horizon or there
        left = {at: max(upto[at].end - begin, 0) for at, begin in begins.items()}
        total = sum(left.values())
        has_more = total > 0 or begins != ended
        if has_more or not self._compared:
            self._compare(connection, start)
            self._compared = True
        if not has_more:
            return start
        if most is not None and total > most:
            left = in_proportion(left, most, left, sum(begins.values()))
        ends = {at: begin + left.get(at, 0) for at, begin in begins.items()}
        return self._range(connection, begins, ends, start.ranges)

    def _range(
        self,
        connection: Connection,
        begins: Mapping[Shard, int],
        ends: Mapping[Shard, int],
        before: Mapping[Shard, LogRange],
    ) -> LogOffset:
        """Return a batch with the mark of each last message, or its former mark if it is gone."""
        marks: dict[Shard, Mark] = {
            at: Mark(each.last, each.at) for at, each in before.items() if each.end == ends.get(at)
        } | log_ranges.marks(connection, self.queues, ends)
        restored = restored_at(connection) or 0
        return LogOffset(
            {
                at: LogRange(begins[at], end, *marks.get(at, (0, 0)), restored)
                for at, end in ends.items()
            }
        )

    def _compare(self, connection: Connection, batch: LogOffset) -> None:
        """
        Raise `OffsetsLost` if the log has another message where a batch has ended.

        Also raises it if the catalog was restored since: what the query wrote may be gone.
        """
        ends = {at: each.end for at, each in batch.ranges.items() if each.last}
        for at, mark in log_ranges.marks(connection, self.queues, ends).items():
            was = batch.ranges[at]
            if mark.id != was.last or (mark.at and was.at and mark.at != was.at):
                raise _another(at, f"has another message at offset {was.end - 1} of", was.at)
        known = {each.restored for each in batch.ranges.values()}
        if self._log.fails_on_loss and not known <= {restored_at(connection) or 0}:
            raise OffsetsLost(
                f"the logs of {listed([queue.name for queue in self.queues], quoted=True)}: the "
                "catalog was restored or adopted since the query has read them, and what it had "
                "written into queues of this store may be gone. Start the query with a new "
                "checkpoint to write all of it again; or set failOnDataLoss=false to go on where "
                "it was, if it writes elsewhere"
            )

    def _partitions(self, connection: Connection, batch: LogOffset) -> list[LogPartition]:
        begins = {at: each.begin for at, each in batch.ranges.items()}
        ends = {at: each.end for at, each in batch.ranges.items()}
        total = sum(max(each.end - each.begin, 0) for each in batch.ranges.values())
        return [
            part
            for queue in self.queues
            for part in self._spread(
                connection, queue, log_ranges.between(connection, queue, begins, ends), total
            )
        ]

    def _check_logged(self, selector: str) -> None:
        """Raise `BadSelector` for metadata that say what became of a message."""
        if function_of(selector) is None:
            used = condition_of(selector, output_schema(self.queues[0].schema)).columns
            if lacking := used & {*METADATA.names} - {*LOG_METADATA.names}:
                raise BadSelector(
                    f"ignis source: selector {selector!r}: a log has no {listed(sorted(lacking))}, "
                    "which are about what consumers did with a message"
                )

    def _selector(self, queue: QueueInfo) -> str | None:
        """Return the condition of the options and, of a subscription, its own; or `BadOption`."""
        own, wanted = queue.settings.selector, self._options.selector
        if own is None or not queue.log_of:
            return wanted
        try:
            condition_of(own, output_schema(queue.schema))
            if wanted is None:
                return own
            if function_of(wanted) is None:
                return f"({own}) AND ({wanted})"
        except BadSelector:
            pass
        raise BadOption(
            f"ignis source: the selector of subscription {queue.name!r} cannot be used here, or "
            "not with that of the options: name the queue whose log it reads"
        )

    def _spread(
        self, connection: Connection, queue: QueueInfo, pieces: Pieces, total: int
    ) -> Iterator[LogPartition]:
        """Yield the partitions of a queue, of a batch with *total* messages."""
        uri, selector = self.store.storage.uri, self._selector(queue)
        if selector is not None:
            condition = condition_of(selector, output_schema(queue.schema))
            scan = SliceScan(connection, [queue], uri, dialect.read_clock(connection))
            pieces = [
                each for each in pieces if decided_by_stats(scan, each[1], [condition]) is not False
            ]
        stretches: list[Pieces] = []
        for _, of_shard in groupby(pieces, lambda each: each[1].shard):
            stretches += _cut([*of_shard], self._log.partitions or 1, total)
        sliced = [(piece, piece.rows) for stretch in stretches for _, piece in stretch]
        plan = read_plans.build(connection, [queue], sliced, uri)
        if self._options.all_columns:
            written = ((queue.id, task.segment.schema_version) for task in plan.tasks)
            replay_check.check_columns(connection, [queue], written)
        tasks = iter(
            zip(plan.tasks, (first for part in stretches for first, _ in part), strict=True)
        )
        parts = [[next(tasks) for _ in stretch] for stretch in stretches]
        sizes = {at: sum(len(task) for task, _ in part) for at, part in enumerate(parts)}
        count = max(self._log.partitions or 0, queue.settings.concurrency, 1)
        for places in spread(sizes, count):
            some = [each for at in sorted(places) for each in parts[at]]
            yield LogPartition(
                replace(plan, tasks=tuple(task for task, _ in some)),
                selector,
                firsts=tuple(first for _, first in some),
            )


_NOT_BEGUN = (
    "to go on without them, set failOnDataLoss=false; the setting log of a queue says how long "
    "its messages are kept"
)
_BEGUN = (
    "a batch of them had begun, and cannot be made again: start the query with a new checkpoint"
)


def _another(at: Shard, what: str, time: int = 0) -> OffsetsLost:
    since = f", and startingTimestamp={time // 1000} to begin about where it was" if time else ""
    return OffsetsLost(
        f"the log of queue {at[0]!r} {what} shard {at[1]}, where the query has been: {at[0]!r} was "
        "dropped and created anew, or the catalog was restored, has failed over, or is a new one. "
        f"Start the query with a new checkpoint{since}"
    )


def _cut(pieces: Pieces, parts: int, total: int) -> Iterator[Pieces]:
    """Divide a shard's slices so that all shards, with *total* messages, have *parts* or more."""
    rows = sum(len(piece.rows) for _, piece in pieces)
    most = min(ceil(rows * parts / total), rows)
    left = list(reversed(pieces))
    for number in range(most):
        room = rows * (number + 1) // most - rows * number // most
        found = []
        while room:
            first, piece = left.pop()
            now, later = piece.rows.split(room)
            found.append((first, piece.narrowed(now)))
            room -= len(now)
            if later:
                left.append((first + len(now), piece.narrowed(later)))
        yield found
