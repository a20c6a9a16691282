"""
`Chosen`: messages that a person chose, and what can be done with them.

The search for them reads one state of the catalog and takes nothing. Unlike a firing, it also finds
messages in flight. It never finds damaged messages.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.records.acts import Subject, by_hand
from queue_core.catalog.slices import id_map, read_plans, segment_lookup
from queue_core.catalog.slices.conditions import SOUND, in_magazines, in_queue, of_few_segments
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.slices.slices import fetch
from queue_core.errors import BadOption
from queue_core.segments.reader import read_table
from queue_core.segments.storage import Storage
from queue_core.selection.queue_rules import of_moving
from queue_core.selection.scan import ID, SliceScan
from queue_core.selection.selection import AnySelector, Selection, condition_of
from queue_core.support.interruption import shielded
from queue_core.values.durations import Duration, check_seconds
from queue_core.values.failure_kinds import BY_HAND, check_kind, readable
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.plan import Taken, having, messages_in, packed
from queue_core.values.rows import Numbers
from queue_core.verbs.intervene import Act, Intervention, intervene
from queue_core.verbs.intervene import find as find_chosen
from queue_core.verbs.quarantine import quarantining
from queue_core.verbs.take_in import take_in

if TYPE_CHECKING:
    from queue_core.selector import Condition

#: The word that chooses every message.
ALL = "all"
#: The most ids that the log of acts names.
SHOWN_IDS = 20
#: About how many rows are examined at a time.
_STEP_ROWS = 1 << 18

#: Message ids, or all of them.
Ids: TypeAlias = "int | str | IdSet | pa.Array | pa.ChunkedArray | npt.NDArray[Any] | Iterable[int]"


@shielded
class Chosen:
    """
    Messages that a person chose with `Queue.choose`.

    The object remembers their ids. Each method looks at the messages as they are when it is called,
    and leaves alone those that are gone, or whose state it does not concern. An act changes each
    message once, and none that becomes eligible while it runs; `only` also leaves out messages that
    become eligible before it begins. An act on many messages is several short transactions, so that
    firings and loads go on meanwhile. If it is interrupted, call it again for the others. Acts
    appear in the view ``reports`` as the task ``by_hand``, and in the counters of the shards.

    Args:
        catalog: The catalog of the queue's store.
        storage: The storage of the queue's store.
        queue: The queue's description in the catalog.
        ids: The ids of the messages.
        magazines: The magazines to which the choice is limited.
        chosen_by: How they were chosen, for the log of acts.
    """

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        queue: QueueInfo,
        ids: IdSet,
        magazines: Sequence[Magazine],
        chosen_by: Mapping[str, Any],
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._queue = queue
        self._ids = ids
        self._magazines = magazines
        self._chosen_by = chosen_by
        #: The moments since when messages that wait must not have come back, if any.
        self._horizons: Mapping[Magazine, Horizon] | None = None

    @property
    def _subject(self) -> Subject:
        return Subject(self._catalog, self._queue.name, self._chosen_by)

    @property
    def ids(self) -> pa.Array:
        """The ids of the chosen messages (int64), ascending, whether they still exist or not."""
        return pa.array(self._ids.numbers(), pa.int64())

    def only(self, act: str, *, consumer: str | None = None) -> Chosen:
        """
        Choose those of the messages that an act would change now.

        The set is fixed: messages that become eligible later, before the act begins or while it
        runs, are not affected. Messages that are fired or moved meanwhile are left alone too, even
        if they come back. Show the number to a person, and call the act on the result::

            waiting = queue.choose("all").only("delete")
            if input(f"delete {len(waiting.ids)} messages? ") == "yes":
                waiting.delete()

        Args:
            act: ``"delete"``, ``"sideline"``, ``"requeue"`` or ``"reload"``, as in `count`.
            consumer: For ``"reload"``, as there.

        Returns:
            The messages, in a queue with enough room.

        Raises:
            BadOption: *act* is unknown, or as `reload` does.
        """
        intervention = self._intervention(_act(act), consumer=consumer)
        with self._catalog.read() as connection:
            taken = find_chosen(connection, self._queue, intervention)
            found = IdSet.of(id_map.ids_of(connection, taken))
            return among(as_of_now(self, connection), found)

    def count(self, act: str | None = None, *, consumer: str | None = None) -> int:
        """
        Count the chosen messages.

        Args:
            act: ``"delete"``, ``"sideline"``, ``"requeue"`` or ``"reload"``: count the messages
                that this method would change now, in a queue with enough room. By default, count
                all chosen messages that still exist, without damaged ones.
            consumer: For ``"reload"``, as there.

        Returns:
            Their number.

        Raises:
            BadOption: *act* is unknown, or as `reload` does.
        """
        intervention = None if act is None else self._intervention(_act(act), consumer=consumer)
        with self._catalog.read() as connection:
            if intervention is not None:
                taken = find_chosen(connection, self._queue, intervention)
            else:
                taken = _present(connection, self._queue, self._magazines, self._ids)
            return messages_in(taken)

    def rows(self) -> pa.Table:
        """
        Return the chosen messages that still exist, waiting or in flight.

        Returns:
            The queue's columns, then the metadata columns (`METADATA`).

        Raises:
            DamagedSegment: Messages cannot be read. They are quarantined; call again for the
                others.
        """
        with self._catalog.read() as connection:
            queue = queues.still_there(connection, self._queue)
            taken = _present(connection, queue, self._magazines, self._ids)
            plan = read_plans.build(connection, [queue], taken, self._storage.uri)
        with quarantining(self._catalog, self._storage):
            return read_table(plan)

    @by_hand
    def delete(self) -> int:
        """
        Remove the chosen messages that wait, in main or in the sideline, for good.

        Messages in flight are left alone: `reload` them first.

        Returns:
            How many messages were removed.
        """
        return self._do(Act.DELETE)

    @by_hand
    def sideline(self, reason: str | None = None, *, kind: str = BY_HAND) -> int:
        """
        Move the chosen messages that wait in main to the sideline.

        Their ``_attempt`` stays as it is, since they have not failed. They get a row in `failures`,
        and are dead: they stay there until a person acts.

        Args:
            reason: Any text; the first 2000 characters are kept.
            kind: One word of lower-case letters, digits and ``_``, up to 32 characters.

        Returns:
            How many messages were moved.

        Raises:
            BadOutcome: *kind* or *reason* is malformed.
        """
        reason = None if reason is None else readable(reason)
        return self._do(Act.SIDELINE, kind=check_kind(kind), reason=reason)

    @by_hand
    def requeue(self) -> int:
        """
        Move the chosen messages that wait in the sideline to the tail of main.

        This includes dead messages, which no shovel moves. A bounded queue takes only as many as it
        has room for, and messages that would expire in main stay. ``_attempt`` stays as it is.

        Returns:
            How many messages were moved.

        Raises:
            DamagedSegment: The expiry column of messages cannot be read. They are quarantined;
                call again for the others.
        """
        return self._do(Act.REQUEUE)

    @by_hand
    def reload(
        self, *, consumer: str | None = None, dead_after: Duration = DEAD_AFTER_SECONDS
    ) -> int:
        """
        Put the chosen messages that are in flight back to their old places.

        By default, this takes messages only from consumers without a sign of life (a heartbeat or
        the firing itself) for *dead_after* seconds, and never from a query that requests them again
        when it restarts.

        Args:
            consumer: The name of a consumer, as the view ``consumers`` shows it. Only its messages
                are put back, even if it is alive. It may handle them once more.
            dead_after: Seconds, or a text such as ``"30s"`` or a ``timedelta``, 0 or more.

        Returns:
            How many messages were put back.

        Raises:
            BadOption: *dead_after* is out of range, no consumer of the name *consumer* has ever
                fired, or it is a query whose source has ``ack=onCommit``.
        """
        seconds = check_seconds("dead_after", dead_after)
        return self._do(Act.RELOAD, consumer=consumer, dead_after=seconds)

    def __repr__(self) -> str:
        return f"<Chosen: {len(self._ids)} messages of queue {self._queue.name!r}>"

    def _do(self, act: Act, **how: Any) -> int:
        return intervene(self._catalog, self._queue, self._intervention(act, **how))

    def _intervention(self, act: Act, **how: Any) -> Intervention:
        ids = self._movable() if act is Act.REQUEUE else self._ids
        return Intervention(
            act=act, ids=ids, magazines=self._magazines, horizons=self._horizons, **how
        )

    def _movable(self) -> IdSet:
        """Return the messages that would not expire in main by their own columns."""
        with self._catalog.read() as connection:
            self._queue = queue = queues.still_there(connection, self._queue)
            rule = Selection.parse([queue], eligibility=of_moving)
            condition = None if rule is None else rule.rules[queue.id].condition
            if condition is None:
                return self._ids
            with quarantining(self._catalog, self._storage):
                uri = self._storage.uri
                return _find(connection, uri, queue, [Magazine.SIDELINE], self._ids, condition)


def choose(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    magazines: Sequence[Magazine],
    ids: Ids | None = None,
    selector: AnySelector | None = None,
) -> Chosen:
    """Return the messages that *ids* and *selector* choose now, as `Queue.choose` describes."""
    if ids is None and selector is None:
        raise BadOption(f'choose: give ids, a selector, or "{ALL}" for all messages')
    condition = None if selector is None else condition_of(selector, queue.schema)
    given = id_set(ids)
    with quarantining(catalog, storage):
        if queue.log_of and Magazine.MAIN in magazines:
            take_in(catalog, storage.uri, [queue.id])
    with quarantining(catalog, storage), catalog.read() as connection:
        if given is not None:
            segment_lookup.check(connection, [queue], id_map.located(connection, [queue.id], given))
        found = _find(connection, storage.uri, queue, magazines, given, condition)
    by = {"selector": selector, "ids": _shown(found) if given is not None else ids}
    return Chosen(catalog, storage, queue, found, magazines, by)


def as_of_now(chosen: Chosen, connection: Connection) -> Chosen:
    """Return the same messages, except those that come back after this call, or an earlier one."""
    if chosen._horizons is not None:
        return chosen
    same = copy.copy(chosen)
    queues = [chosen._queue.id]
    same._horizons = {each: Horizon.of(connection, queues, each) for each in chosen._magazines}
    return same


def among(chosen: Chosen, ids: IdSet) -> Chosen:
    """Return those of chosen messages that have some ids."""
    some = copy.copy(chosen)
    some._ids = chosen._ids & ids
    return some


def _shown(ids: IdSet) -> str:
    """Return the first ids, and how many there are."""
    first = ", ".join(map(str, ids.numbers()[:SHOWN_IDS]))
    return first if len(ids) <= SHOWN_IDS else f"{first} and {len(ids) - SHOWN_IDS} more"


def _act(name: str) -> Act:
    if name not in tuple(Act):
        raise BadOption(f"act={name!r}: use {', '.join(Act)}")
    return Act(name)


def id_set(ids: Ids | None) -> IdSet | None:
    """Return message ids as a set; None: all. Raises `BadOption` and `BadOutcome`."""
    if ids is None or (isinstance(ids, str) and ids == ALL):
        return None
    if isinstance(ids, str):
        raise BadOption(f'ids={ids!r}: give message ids, or "{ALL}" for all messages')
    if isinstance(ids, IdSet):
        return ids
    return IdSet.of([int(ids)] if isinstance(ids, Integral) else ids)


def are_of_one_queue(one: Chosen, other: Chosen) -> bool:
    """Return whether two choices are of one queue: a clone has messages with the same ids."""
    return one._queue.id == other._queue.id


def number_of(chosen: Chosen) -> int:
    """Return how many messages are chosen, without an array of their ids."""
    return len(chosen._ids)


def horizon_of(chosen: Chosen, magazine: Magazine) -> Horizon | None:
    """Return the moment since when messages of a magazine must not have come back, if any."""
    return (chosen._horizons or {}).get(magazine)


def _find(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    magazines: Sequence[Magazine],
    ids: IdSet | None,
    condition: Condition | None,
) -> IdSet:
    """Return the ids of messages that are there: of *ids*, and that meet a condition."""
    found = _present(connection, queue, magazines, ids)
    if condition is None:
        return IdSet.of(id_map.ids_of(connection, found))
    rows = _matching(connection, storage_uri, queue, found, condition)
    return IdSet.of(id_map.logical(connection, rows))


def _present(
    connection: Connection, queue: QueueInfo, magazines: Sequence[Magazine], ids: IdSet | None
) -> list[Taken]:
    """Return the rows of slices that hold messages, waiting or in flight; of *ids*, or all."""
    there = (*in_magazines(magazines), *SOUND)
    if ids is None:
        found = fetch(connection, *in_queue(queue.id), *there)
        return [(piece, piece.rows) for piece in found]
    located = id_map.located(connection, [queue.id], ids)
    here = of_few_segments(queue.id, located.segments)
    return having(fetch(connection, *here, *there), located)


def _matching(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    taken: Sequence[Taken],
    condition: Condition,
) -> Numbers:
    """Return the rows that meet a condition, as ids. Statistics decide about some slices."""
    # Not at the top: it imports what evaluates columns.
    from queue_core.selection.fifo_scan import decided_by_stats

    scan = SliceScan(connection, [queue], storage_uri, dialect.read_clock(connection))
    decided = [(each, decided_by_stats(scan, each[0], [condition])) for each in taken]
    sure = [each for each, result in decided if result]
    parts = [id_map.rows_of(sure)]
    for step in _steps([each for each, result in decided if result is None]):
        rows = scan.table(step, condition.columns)
        parts.append(rows.filter(condition.mask(rows)).column(ID).to_numpy())
    return np.concatenate(parts)


def _steps(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Cut slices, in the order of `fetch`, into steps of one magazine."""
    # A scan reads one magazine: places say nothing about the order of two.
    for _, of_one in groupby(taken, key=lambda each: each[0].magazine):
        here = list(of_one)
        yield from packed(here, [(len(rows),) for _, rows in here], [_STEP_ROWS])
