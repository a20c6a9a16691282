"""Sweep: rescue what was fired too long ago and never finished.

Changes: slices fired before a time become slices of the sideline, some of them in each transaction,
and the shard's sweep pointer goes behind them; so a sweep that was interrupted goes on where it
was. It ends after one round through all shards. Guard: what a living consumer still works on is
left alone: its tickets behind the last acknowledged one, as long as its heart beats. Slices that
others hold are passed over, and what was not fired is not looked at. With a leader, each
transaction is one of the leader's or is refused. Crash before a commit: that batch is fired still.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, select, tuple_, update

from queue_core import faults
from queue_core.catalog import dialect, failures
from queue_core.catalog.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import consumers, counters, slices
from queue_core.catalog.task_log import Moves
from queue_core.failure_kinds import SWEPT
from queue_core.model import Magazine, QueueInfo, State
from queue_core.plan import Taken
from queue_core.rows import EMPTY
from queue_core.selection.conditions import ago

#: Slices that one transaction of a sweep moves at most.
BATCH_SLICES = 1000

#: Makes a transaction one of the leader's, or raises `NotLeading`.
Guard = Callable[[Connection], None]
#: A shard and a place in it.
_Spot = tuple[int, int]
_START: _Spot = (0, 0)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of a magazine that a sweep goes through, from a spot (inclusive) to another."""

    magazine: Magazine
    begin: _Spot = _START
    end: _Spot | None = None


@dataclass(frozen=True, slots=True)
class _Stuck:
    """What counts as stuck: fired so many seconds ago, by a consumer that is dead, or so long."""

    main: float
    sideline: float
    dead_after: float

    def rules(self, magazine: Magazine) -> tuple[ColumnElement[bool], ...]:
        age = self.main if magazine is Magazine.MAIN else self.sideline
        alive = select(consumers.c.id).where(
            consumers.c.id == slices.c.consumer_id,
            consumers.c.heartbeat_at > ago(self.dead_after),
            consumers.c.acknowledged < slices.c.ticket,
        )
        return (
            slices.c.state == int(State.FIRED),
            slices.c.fired_at <= ago(age),
            ~alive.exists(),
        )


def sweep(
    catalog: Catalog,
    queue: QueueInfo,
    older_than: float | None = None,
    dead_after: float = DEAD_AFTER_SECONDS,
    leads: Guard | None = None,
) -> int:
    """
    Sideline what was fired more than *older_than* seconds ago; return how many messages.

    Without it, the queue's settings say when: later for the sideline than for main. Raises
    `NotLeading` when *leads* does; what was swept by then stays so.
    """
    settings = queue.settings
    if older_than is None:
        stuck = _Stuck(settings.sweep_after, settings.sideline_sweep_after, dead_after)
    else:
        stuck = _Stuck(older_than, older_than, dead_after)
    swept = 0
    for stretch in _round(catalog, queue):
        spot: _Spot | None = stretch.begin
        while spot is not None:
            count, spot = _sweep_batch(catalog, queue, stuck, stretch, spot, leads)
            swept += count
    return swept


def _round(catalog: Catalog, queue: QueueInfo) -> Iterator[_Stretch]:
    """Once through everything, beginning where the last sweep was interrupted."""
    query = (
        select(counters.c.magazine, counters.c.shard, counters.c.sweep_pointer)
        .where(counters.c.queue_id == queue.id, counters.c.sweep_pointer > 0)
        .order_by(counters.c.magazine, counters.c.shard)
    )
    with catalog.read() as connection:
        left = connection.execute(query).first()
    if left is None:
        yield from map(_Stretch, Magazine)
        return
    there, spot = Magazine(left.magazine), (left.shard, left.sweep_pointer)
    yield _Stretch(there, spot)
    yield from (_Stretch(magazine) for magazine in Magazine if magazine > there)
    yield from (_Stretch(magazine) for magazine in Magazine if magazine < there)
    yield _Stretch(there, end=spot)


def _sweep_batch(
    catalog: Catalog,
    queue: QueueInfo,
    stuck: _Stuck,
    stretch: _Stretch,
    begin: _Spot,
    leads: Guard | None,
) -> tuple[int, _Spot | None]:
    """Move the next slices from *begin* on; how many messages, and where the next batch begins."""
    spot = tuple_(slices.c.shard, slices.c.position)
    conditions = [
        slices.c.queue_id == queue.id,
        slices.c.magazine == int(stretch.magazine),
        *stuck.rules(stretch.magazine),
        spot >= begin,
    ]
    if stretch.end is not None:
        conditions.append(spot < stretch.end)

    def work(connection: Connection) -> tuple[int, _Spot | None]:
        if leads is not None:
            leads(connection)
        found = fetch(connection, *conditions, limit=BATCH_SLICES + 1, lock="skip")
        batch, behind = found[:BATCH_SLICES], found[BATCH_SLICES:]
        following = (behind[0].shard, behind[0].position) if behind else None
        moved = put_aside(connection, queue, [(s, s.rows) for s in batch], SWEPT, Changes())
        _set_pointers(connection, queue, stretch.magazine, begin, following)
        faults.point("sweep.before_commit")
        return moved, following

    result = catalog.write(work)
    faults.point("sweep.committed")
    return result


def put_aside(
    connection: Connection, queue: QueueInfo, taken: Sequence[Taken], kind: str, changes: Changes
) -> int:
    """Move rows to the sideline, note why, and make other *changes*; how many messages."""
    moves = Moves()
    holders: dict[int | None, list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        changes.keep(piece, EMPTY if rows is piece.rows else piece.rows - rows)
        changes.move(piece, rows, Magazine.SIDELINE)
        changes.count(piece, swept=len(rows))
        moves.add(piece, len(rows), Magazine.SIDELINE)
        holders[piece.consumer_id].append((piece, rows))
    changes.apply(connection)
    if taken:
        names = _names(connection, [holder for holder in holders if holder is not None])
        for holder, those in holders.items():
            told = failures.of_same(those, kind, None)
            failures.record(connection, queue.id, names.get(holder), told)
        moves.record(connection, queue.id, "sweep")
    return len(moves)


def _names(connection: Connection, consumer_ids: list[int]) -> dict[int | None, str]:
    these = dialect.one_of(connection, consumers.c.id, consumer_ids)
    rows = connection.execute(select(consumers.c.id, consumers.c.name).where(these))
    return {row.id: row.name for row in rows}


def _set_pointers(
    connection: Connection,
    queue: QueueInfo,
    magazine: Magazine,
    begin: _Spot,
    following: _Spot | None,
) -> None:
    """The shards that are through have theirs at 0, and the one that is not, where it goes on."""
    here = (counters.c.queue_id == queue.id, counters.c.magazine == int(magazine))
    through = [counters.c.shard >= begin[0], counters.c.sweep_pointer != 0]
    if following is not None:
        through.append(counters.c.shard < following[0])
        connection.execute(
            update(counters)
            .where(*here, counters.c.shard == following[0])
            .values(sweep_pointer=following[1])
        )
    connection.execute(update(counters).where(*here, *through).values(sweep_pointer=0))
