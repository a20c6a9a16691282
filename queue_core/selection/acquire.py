"""Acquire: choose and lock the messages that a firing takes, from its shards in turn.

It changes nothing. The catalog chooses slices by SQL conditions; if a `Selection` chooses rows,
they were found before, as `Candidates`. The limits apply last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.slices import amounts, id_map, intake, shard_locks, slice_batches
from queue_core.catalog.slices.conditions import Position, eligible, eligible_of_segments
from queue_core.catalog.slices.shard_locks import Backlog
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.selection.by_rank import take_by_rank
from queue_core.selection.fired import Choice
from queue_core.selection.quotas import (
    bytes_of_queues,
    most_slices,
    shares,
    shares_of_queues,
    take_shares,
)
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.shard_choice import Lock, choose_shards
from queue_core.values.model import Magazine, Slice
from queue_core.values.plan import Taken, first_place, having, messages_in, take, within_bytes

#: The head of a shard is found again each time so many messages were fired from it.
HEAD_EVERY = 256
#: The most slices that one transaction of a long task takes, so that others wait for about ten
#: milliseconds at most.
ROUND_SLICES = 1000


def anything(connection: Connection, request: FireRequest) -> bool:
    """Return whether there may be messages to take."""
    logged = (
        request.terms.logged
        and request.magazine is Magazine.MAIN
        and amounts.anything_logged(connection, request.queue_ids)
    )
    return logged or amounts.anything(connection, *eligible(request))


def acquire(
    connection: Connection,
    request: FireRequest,
    lock: Lock,
    candidates: Candidates | None = None,
    seen: Mapping[ShardKey, Backlog] | None = None,
) -> Choice:
    """
    Choose the rows to take from each shard, within the limits.

    *lock*: ``"wait"`` locks all shards; another lock, only shards with a backlog; None, no shard.
    With a lock, slices that other transactions have locked are skipped. With *candidates*, only
    these are taken. *seen* is the backlog of the shards, if it was just read.
    """
    # Not by rank: all of several queues may be too many slices, and a horizon may leave too few.
    is_whole = len(request.queue_ids) == 1 and request.horizon is None
    if request.terms.fair and candidates is None and (is_whole or not request.takes_all):
        return _take_by_queue(connection, request, lock)
    full, waited = False, None
    backlog: Mapping[ShardKey, Backlog] = {}
    if candidates is not None:
        full = candidates.full
        chosen = _take_candidates(connection, request, candidates, lock)
    elif request.max_messages is None:
        backlog = _backlog(connection, request, lock, seen)
        chosen = _take(connection, request, backlog, dict.fromkeys(backlog), lock)
    else:
        limit = request.max_messages
        chosen, full, waited, backlog = _take_limited(connection, request, limit, lock, seen)
    chosen = {key: taken for key, taken in chosen.items() if taken}
    if request.max_bytes is not None and chosen:
        ranked = candidates.ranked if candidates else ()
        found = _count(chosen)
        chosen = within_bytes(chosen, request.max_bytes, ranked, partial(shares, request))
        full |= _count(chosen) < found
    taken = [each for key in sorted(chosen) for each in chosen[key]]
    return Choice(taken, full, waited, backlog)


def heads_to_find(chosen: Choice) -> Iterator[tuple[ShardKey, int, int]]:
    """Yield the shards whose heads are worth a search: enough was fired, or messages came back."""
    counts = Counter[ShardKey]()
    for piece, rows in chosen.taken:
        counts[piece.shard_key] += len(rows)
    for key, count in counts.items():
        shard = chosen.backlog.get(key)
        if shard is None:
            continue
        enough = (shard.fired + count) // HEAD_EVERY > shard.fired // HEAD_EVERY
        if enough or shard.head == shard_locks.UNKNOWN:
            yield key, shard.head, shard.released


def take_batch(
    connection: Connection,
    request: FireRequest,
    begin: Position,
    count: int,
) -> tuple[SliceBatch, Position | None]:
    """
    Return the next *count* slices for a request without limits, and where the next batch begins.

    They are read from *begin* on, in order of shards and places, under the locks of all shards.
    There can be more than *count*, because slices whose rows interleave are taken together.
    """
    if dialect.of(connection).writes_in_parallel:
        shard_locks.lock(connection, *request.where)
    where, given = eligible(request)
    whole, batch = 0, slice_batches.read_given(connection, where, count + 1, begin, given)
    while len(batch) and not (whole := batch.whole(count)):
        count *= 8
        batch = slice_batches.read_given(connection, where, count + 1, begin, given)
    if whole == len(batch):
        return batch, None
    return batch[:whole], (int(batch.shard[whole]), int(batch.position[whole]))


def _backlog(
    connection: Connection,
    request: FireRequest,
    lock: Lock,
    seen: Mapping[ShardKey, Backlog] | None = None,
) -> dict[ShardKey, Backlog]:
    """Return the backlog of all shards, or of those that could be locked."""
    if lock == "skip":
        return shard_locks.lock_free(connection, *request.where, seen)
    read = shard_locks.lock if lock else shard_locks.backlog
    return read(connection, *request.where)


def _take_by_queue(connection: Connection, request: FireRequest, lock: Lock) -> Choice:
    """Take from fair queues by rank, from others in turn; they share the limits."""
    # All shards: the next message by rank may be in any of them.
    backlog = _backlog(connection, request, "wait" if lock else None)
    if len(request.queue_ids) == 1:
        return _take_of_queue(connection, request, lock)
    waiting = dict.fromkeys(request.queue_ids, 0)
    for (queue_id, _, _), shard in backlog.items():
        waiting[queue_id] += shard.waiting
    turn = sum(shard.fired for shard in backlog.values())
    most = sum(waiting.values()) if request.max_messages is None else request.max_messages
    counts = shares_of_queues(request, waiting, most, turn)
    sizes = (
        {} if request.max_bytes is None else bytes_of_queues(request, [*counts], request.max_bytes)
    )
    alone = replace(request, terms=replace(request.terms, weights={}))
    parts = [
        replace(
            alone,
            queue_ids=(queue_id,),
            max_messages=count,
            max_bytes=sizes.get(queue_id),
        )
        for queue_id, count in counts.items()
        if count
    ]
    chosen = [_take_of_queue(connection, part, lock) for part in parts]
    taken = [pair for part in chosen for pair in part.taken]
    if not taken:
        # The messages that the counters show may not be fired now: give their part to other queues.
        others = (
            _take_of_queue(connection, replace(alone, queue_ids=(queue_id,)), lock)
            for queue_id in request.queue_ids
        )
        return next((each for each in others if each.taken), Choice([]))
    return Choice(taken, any(part.full for part in chosen))


def _take_of_queue(connection: Connection, request: FireRequest, lock: Lock) -> Choice:
    """Take messages of one queue, whose shards are locked."""
    if request.queue_ids[0] in request.terms.fair:
        return take_by_rank(connection, request, lock)
    in_turn = replace(request.terms, fair=frozenset())
    return acquire(connection, replace(request, terms=in_turn), lock)


def _take_limited(
    connection: Connection,
    request: FireRequest,
    limit: int,
    lock: Lock,
    seen: Mapping[ShardKey, Backlog] | None,
) -> tuple[dict[ShardKey, list[Taken]], bool, int | None, dict[ShardKey, Backlog]]:
    """
    Take a number of messages: by the queues' weights, or from shards in turn.

    Also return whether they fill the limit of bytes, how many messages waited, if known, and the
    backlogs of the shards that were locked.
    """
    if request.terms.weights:
        return _take_by_weight(connection, request, limit, lock, seen), False, None, {}
    backlog, waited = choose_shards(connection, request, lock, limit, seen=seen)
    full = False
    chosen = _take_evenly(connection, request, backlog, limit, lock)
    missing = min(limit, sum(shard.waiting for shard in backlog.values())) - _count(chosen)
    most = most_slices(request, len(backlog))
    if missing > 0 and lock in ("skip", None) and all(len(t) < most for t in chosen.values()):
        size = sum(piece.bytes_of(rows) for taken in chosen.values() for piece, rows in taken)
        full = request.max_bytes is not None and size >= request.max_bytes
        if not full:
            # The other messages of these shards may not be fired now: look in further shards.
            every = not any(chosen.values())
            others, waited = choose_shards(
                connection, request, lock, missing, without=backlog, every=every
            )
            chosen |= _take_evenly(connection, request, others, missing, lock)
            backlog = backlog | others
    if not any(chosen.values()) and lock in ("wait", None):
        # The counters are only hints, and were wrong: take messages from any shard.
        shards = backlog if lock else _backlog(connection, request, lock)
        found = take_shares(connection, request, dict.fromkeys(shards, limit), lock)
        if request.takes_from_logs and not any(found.values()):
            # The slices there may not be fired now, but messages that are still in a log may.
            found = _take(connection, request, shards, dict.fromkeys(shards, limit), lock)
        chosen = _first(request, found, limit)
    return chosen, full, waited, backlog


def _take_by_weight(
    connection: Connection,
    request: FireRequest,
    limit: int,
    lock: Lock,
    seen: Mapping[ShardKey, Backlog] | None,
) -> dict[ShardKey, list[Taken]]:
    """Take a number of messages from all shards, since each queue's part depends on the others."""
    backlog = _backlog(connection, request, lock, seen)
    chosen = _take_evenly(connection, request, backlog, limit, lock)
    waiting = sum(shard.waiting for shard in backlog.values())
    if backlog and _count(chosen) < min(limit, max(waiting, 1)):
        # Some may not be fired now, or the counters were wrong: look at the slices themselves.
        found = _take(connection, request, backlog, dict.fromkeys(backlog, limit), lock)
        chosen = _first(request, found, limit)
    return chosen


def _take_evenly(
    connection: Connection,
    request: FireRequest,
    backlog: Mapping[ShardKey, Backlog],
    limit: int,
    lock: Lock,
) -> dict[ShardKey, list[Taken]]:
    waiting = {key: shard.waiting for key, shard in backlog.items()}
    fired = {key: shard.fired for key, shard in backlog.items()}
    return _take(connection, request, backlog, shares(request, waiting, limit, fired), lock)


def _take(
    connection: Connection,
    request: FireRequest,
    backlog: Mapping[ShardKey, Backlog],
    wanted: Mapping[ShardKey, int | None],
    lock: Lock,
) -> dict[ShardKey, list[Taken]]:
    """Take a number of messages from each shard, or all: first slices, then from the log."""
    heads = {key: backlog[key].head for key in wanted}
    if not request.takes_from_logs or not any(shard.behind for shard in backlog.values()):
        return take_shares(connection, request, wanted, lock, heads)
    # Skip shards where, by their counters, only the log has messages. Not after a wait for locks:
    # the counters may then lack what other transactions have just taken in.
    own = {
        key: count
        for key, count in wanted.items()
        if lock == "wait" or backlog[key].waiting > backlog[key].behind
    }
    chosen = take_shares(connection, request, own, lock, heads)
    lacking = {}
    for key, count in wanted.items():
        behind = backlog[key].behind
        rest = behind if count is None else count - messages_in(chosen.get(key, ()))
        if min(rest, behind) > 0:
            lacking[key] = min(rest, behind)
    most = most_slices(request, len(wanted))
    for key, pieces in intake.behind(connection, backlog, lacking, most).items():
        taken = chosen.setdefault(key, [])
        # A shard that has reached the limit of slices may have further ones, which precede the log.
        left = max(most - len(taken), 0)
        taken += ((piece, piece.rows) for piece in pieces[:left])
    return chosen


def _take_candidates(
    connection: Connection, request: FireRequest, candidates: Candidates, lock: Lock
) -> dict[ShardKey, list[Taken]]:
    """Take the remaining candidates from shards that are locked."""
    shards = _unfired(connection, request, candidates, lock)
    # The rows that hold the candidates now. They stay there: compaction needs these locks, too.
    ids = id_map.located(connection, request.queue_ids, candidates.ids)
    where, given = eligible_of_segments(request, ids.segments)
    found = fetch(connection, *where, given=given, lock="skip" if lock else None)
    # Sorted again: the first candidate of a slice may come after those of later slices.
    chosen = {
        key: sorted(having(pieces, ids), key=first_place)
        for key, pieces in by_shard(found).items()
        if shards is None or key in shards
    }
    limit = request.max_messages
    return chosen if limit is None else _first(request, chosen, limit)


def _unfired(
    connection: Connection, request: FireRequest, candidates: Candidates, lock: Lock
) -> set[ShardKey] | None:
    """Lock shards; return those that nobody fired from since the search (None: all)."""
    locks = lock is not None and dialect.of(connection).writes_in_parallel
    if not locks and not candidates.fired:
        return None
    return {
        key
        for key, shard in _backlog(connection, request, lock).items()
        if candidates.fired.get(key, shard.fired) == shard.fired
    }


def _first(
    request: FireRequest, chosen: Mapping[ShardKey, list[Taken]], limit: int
) -> dict[ShardKey, list[Taken]]:
    """Cut the rows that were chosen from each shard to a limit over all shards."""
    sizes = {key: messages_in(taken) for key, taken in chosen.items()}
    return {key: take(chosen[key], n) for key, n in shares(request, sizes, limit).items()}


def _count(chosen: Mapping[ShardKey, list[Taken]]) -> int:
    return sum(map(messages_in, chosen.values()))


def by_shard(pieces: Sequence[Slice]) -> dict[ShardKey, list[Slice]]:
    """Group slices by shard, in their order."""
    found: dict[ShardKey, list[Slice]] = {}
    for piece in pieces:
        found.setdefault(piece.shard_key, []).append(piece)
    return found
