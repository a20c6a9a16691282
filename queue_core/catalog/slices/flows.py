"""Flows: what the values of `fair_by` have waiting, and the ranks of messages in fair queues.

A message's rank is the virtual time at which it is to be fired (`queue_core.values.ranks`). A load
begins each of its flows at the virtual time of the queue, or after the flow's last message if that
is later. Messages that come back to main, and rows that were staged before the queue was fair, have
one flow together. A queue is fair if it has the row of its virtual time.

Guard: loads into one shard follow one another, because they allocate its places first. So the
messages of a flow in a shard have rising ranks. Two loads of one flow into different shards may
give it the same ranks; its end is that of the load that reaches further. Firings advance the
virtual time, under the locks of all shards. Messages that come back at their places set it back,
but not behind the end of a forgotten flow.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from sqlalchemy import Connection, Executable, bindparam, case, delete, func, or_, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.slice_batches import NULL, SliceBatch
from queue_core.catalog.tables import flows, slices
from queue_core.segments.fair_order import FORGOTTEN, RETURNED, WHOLE, whole
from queue_core.values.model import Magazine, Staged
from queue_core.values.ranks import TICKS, Ranking, Stretch, Ticks, groups
from queue_core.values.rows import Rows

#: The share of firings that forget flows.
FORGETS = 1 / 16
#: A flow is forgotten when the virtual time has passed its end by so much: the turns of messages
#: that may be in flight, and come back.
KEPT = 100_000 * TICKS

_WHOLE_FLOW = (flows.c.queue_id == bindparam("queue"), flows.c.flow == WHOLE)
_ONE = select(flows.c.flow, flows.c.finish).where(
    flows.c.queue_id == bindparam("queue"),
    (flows.c.flow == WHOLE) | (flows.c.flow == bindparam("flow")),
)
_NOW = select(flows.c.finish).where(*_WHOLE_FLOW)
_ADVANCE = update(flows).where(*_WHOLE_FLOW, flows.c.finish < bindparam("rank"))
_ADVANCE = _ADVANCE.values(finish=bindparam("rank"))
_FORGOTTEN = select(flows.c.finish).where(
    flows.c.queue_id == bindparam("queue"), flows.c.flow == FORGOTTEN
)
_SET_BACK = update(flows).where(*_WHOLE_FLOW, flows.c.finish > bindparam("rank"))
_SET_BACK = _SET_BACK.values(finish=bindparam("rank"))


def hold(connection: Connection, queue_id: int) -> None:
    """
    Wait for those that fire, settle or move messages of a queue, and keep new ones waiting.

    This comes before the lock of the queue's row, as in all verbs. Without it, firings would pass
    over the slices that `begin` and `end` lock, and messages would come back by the former rule.
    """
    for magazine in Magazine:
        shard_locks.lock(connection, [queue_id], magazine)
    held = select(slices.c.id).where(slices.c.queue_id == queue_id, slices.c.ticket.is_not(None))
    connection.execute(held.order_by(slices.c.id).with_for_update()).all()


def begin(connection: Connection, queue_id: int) -> None:
    """
    Make a queue fair, or fair by another column; what waits comes before all later messages.

    It is new, or held (`hold`).
    """
    now = connection.scalar(_NOW, {"queue": queue_id}) or 0
    last = connection.scalar(select(func.max(flows.c.finish)).where(flows.c.queue_id == queue_id))
    _rank_all(connection, queue_id, int(now))
    connection.execute(delete(flows).where(flows.c.queue_id == queue_id))
    # After the last of the ranks that messages in the sideline or in flight may have had.
    _write(connection, queue_id, {WHOLE: max(int(now), int(last or 0)) + 1})


def end(connection: Connection, queue_id: int) -> None:
    """Make a queue fire the oldest message first again. It is held (`hold`)."""
    _rank_all(connection, queue_id, None)
    connection.execute(delete(flows).where(flows.c.queue_id == queue_id))


def advance(connection: Connection, queue_id: int, rank: int) -> None:
    """Note the highest rank that a firing has taken, and now and then forget flows behind it."""
    connection.execute(_ADVANCE, {"queue": queue_id, "rank": rank})
    if rank > KEPT and random.random() < FORGETS:
        _forget(connection, queue_id, rank - KEPT)


def set_back(connection: Connection, queue_id: int, rank: int) -> None:
    """
    Let the next new flows start at *rank*, as messages of this rank come back at their places.

    The flows that have loaded since those messages were fired keep their ranks.
    """
    least = connection.scalar(_FORGOTTEN, {"queue": queue_id}) or 0
    connection.execute(_SET_BACK, {"queue": queue_id, "rank": max(rank, int(least))})


def _forget(connection: Connection, queue_id: int, rank: int) -> None:
    """Forget the flows that end at *rank* or before."""
    special = flows.c.flow.in_((WHOLE, FORGOTTEN))
    behind = (flows.c.queue_id == queue_id, ~special, flows.c.finish <= rank)
    # Without those that a load has locked, so that no two transactions wait for each other.
    found = select(flows.c.flow).where(*behind).with_for_update(skip_locked=True, of=flows)
    gone = list(connection.scalars(found))
    if gone:
        these = dialect.one_of(flows.c.flow, gone)
        connection.execute(delete(flows).where(flows.c.queue_id == queue_id, these))
        before = int(connection.scalar(_FORGOTTEN, {"queue": queue_id}) or 0)
        _write(connection, queue_id, {FORGOTTEN: max(rank, before)})


def rank_loaded(
    connection: Connection,
    queue_id: int,
    staged: Mapping[int, Staged],
    new: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return new slices with ranks, cut where needed; *staged*: the segments by their ids."""
    rankings = {id: whole(segment.rankings, segment.rows) for id, segment in staged.items()}
    known = {flow for each in rankings.values() for one in each for flow in one.flows.tolist()}
    finishes = _finishes(connection, queue_id, known)
    now = finishes.setdefault(WHOLE, 0)
    of_segment: dict[int, list[dict[str, Any]]] = {id: [] for id in staged}
    for row in new:
        of_segment[row["segment_id"]].append(row)
    ranked = []
    for id, rows in of_segment.items():
        for ranking in rankings[id]:
            starts = [finishes.get(flow, now) for flow in ranking.flows.tolist()]
            group_of_flow, begins = groups(np.array(starts, dtype=np.int64), now)
            ends = (begins[group_of_flow] + ranking.spans).tolist()
            finishes |= dict(zip(ranking.flows.tolist(), ends, strict=True))
            for row in rows:
                if row["row_start"] < ranking.stop and ranking.start < row["row_stop"]:
                    ranked += _cut(row, ranking, group_of_flow, begins)
    _write(connection, queue_id, {flow: finishes[flow] for flow in known})
    return ranked


def rank_returned(connection: Connection, batch: SliceBatch, position: Ticks) -> dict[str, Ticks]:
    """
    Return the ranks and paces of slices that come to main; none if no queue of them is fair.

    *position*: their new places. -1 stands for none.
    """
    ranks, paces = np.full(len(batch), NULL), np.full(len(batch), NULL)
    end = position + batch.row_stop - batch.row_start
    is_fair = False
    for queue_id in np.unique(batch.queue_id).tolist():
        finishes = _finishes(connection, queue_id, {RETURNED})
        if not finishes:
            continue
        is_fair = True
        here = batch.queue_id == queue_id
        at = max(finishes.get(RETURNED, 0), finishes[WHOLE])
        span = int(batch.count[here].sum()) * TICKS
        # The shards take turns. In each, places decide, as slices may interleave.
        _, of = np.unique(batch.shard[here], return_inverse=True)
        first = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
        last = np.zeros_like(first)
        np.minimum.at(first, of, position[here])
        np.maximum.at(last, of, end[here])
        paces[here] = np.maximum(span // (last - first), 1)[of]
        ranks[here] = at + (position[here] - first[of]) * paces[here]
        _write(connection, queue_id, {RETURNED: at + span})
    return {"rank": ranks, "rank_step": paces} if is_fair else {}


def _finishes(connection: Connection, queue_id: int, known: set[int]) -> dict[int, int]:
    """Return the ends of some flows that have one, and the virtual time; none if it is not fair."""
    if len(known) == 1:
        # The path of small loads, where each step counts.
        found = connection.execute(_ONE, {"queue": queue_id, "flow": min(known)})
    else:
        these = dialect.one_of(flows.c.flow, sorted({WHOLE, *known}))
        query = select(flows.c.flow, flows.c.finish).where(flows.c.queue_id == queue_id, these)
        found = connection.execute(query)
    return {row.flow: int(row.finish) for row in found}


def _write(connection: Connection, queue_id: int, finishes: Mapping[int, int]) -> None:
    # In one order, so that two loads do not wait for each other.
    rows = [
        {"queue_id": queue_id, "flow": flow, "finish": finishes[flow]} for flow in sorted(finishes)
    ]
    # A batch of a query may have no messages.
    if rows:
        connection.execute(_put(dialect.of(connection)), rows)


@lru_cache(maxsize=4)
def _put(database: dialect.Dialect) -> Executable:
    new = database.insert_new(flows)
    # Another load may have lengthened the flow in another shard since it was read.
    furthest = case(
        (flows.c.finish < new.excluded.finish, new.excluded.finish), else_=flows.c.finish
    )
    statement: Executable = new.on_conflict_do_update(
        index_elements=list(flows.primary_key), set_={"finish": furthest}
    )
    return statement


def _cut(
    row: dict[str, Any], ranking: Ranking, group_of_flow: Ticks, begins: Ticks
) -> list[dict[str, Any]]:
    """Cut a slice, given as a row, into parts whose ranks are on one line each."""
    rows = Rows.from_bytes(row["row_start"], row["row_stop"], row["bitmap"])
    parts: list[tuple[Rows, Stretch, int]] = []
    group_of_row = None if len(begins) == 1 else group_of_flow[ranking.flow_of_rows()]
    for line in ranking.stretches:
        here = rows.between(line.start, line.stop)
        if not here:
            continue
        if group_of_row is None:
            parts.append((here, line, 0))
            continue
        numbers = here.numbers()
        group_of = group_of_row[numbers.astype(np.int64) - ranking.start]
        for group in np.unique(group_of).tolist():
            parts.append((Rows.of_numbers(numbers[group_of == group]), line, group))
    return [
        row
        | {
            "position": row["position"] + part.start - row["row_start"],
            "row_start": part.start,
            "row_stop": part.stop,
            "bitmap": part.to_bytes(),
            "count": len(part),
            "bytes": row["bytes"] * len(part) // max(row["count"], 1),
            "rank": int(begins[group]) + line.tag + line.pace * (part.start - line.start),
            "rank_step": line.pace if len(part) > 1 else 0,
        }
        for part, line, group in parts
    ]


def _rank_all(connection: Connection, queue_id: int, rank: int | None) -> None:
    """Give all messages in main the same rank."""
    values = {"rank": rank, "rank_step": None if rank is None else 0}
    in_main = (slices.c.queue_id == queue_id, slices.c.magazine == int(Magazine.MAIN))
    others = or_(*(slices.c[name].is_distinct_from(value) for name, value in values.items()))
    ranking = update(slices).where(*in_main, others).values(seals.changing(slices, **values))
    while connection.execute(ranking).rowcount:
        # A settlement that had locked some may have reloaded a part of one, as a new one.
        pass
