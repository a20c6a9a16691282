"""A user's own policy: a check function, called with pairs of messages, round by round.

Each round decides about at most one new message of each key, and so covers all keys at once. With
distances, a round has one message of each shard, because distances count all messages of the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption
from queue_core.names import nearest
from queue_core.policies.decisions import NEWEST, ORDERS, Decision
from queue_core.policies.inputs import BoundPolicy, Flags, PolicyInput, PolicyResult
from queue_core.policies.numbering import ranks
from queue_core.rows import Numbers

#: Columns of queued messages that a check sees in addition to those of the queue.
RETRIEVED, DISTANCE = "_retrieved", "_distance"

#: Decides about one new and one queued message, as dicts.
Check: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Decision]
#: Decides about pairs, row by row of two tables; returns texts of `Decision`.
CheckPairs: TypeAlias = Callable[[pa.Table, pa.Table], "pa.Array | pa.ChunkedArray"]

_CODES = {decision.value: code for code, decision in enumerate(Decision)}
_DECISIONS = list(Decision)
_QUEUES = np.array([decision.queues for decision in _DECISIONS])
_DELETES = np.array([decision.deletes for decision in _DECISIONS])


@dataclass(frozen=True, slots=True)
class Vectorised:
    """
    A policy with a user's own check of pairs; made by `vectorised` and `per_message`.

    Args:
        check: As for `vectorised`.
        order: As for `vectorised`.
        distance: As for `vectorised`.
    """

    check: CheckPairs
    order: str = NEWEST
    distance: bool = False

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """
        Prepare the check for a queue; it sees all columns.

        Args:
            schema: The queue's columns.
            key: The queue's key column.

        Returns:
            The policy, ready for the queue's messages.

        Raises:
            BadOption: The order is unknown.
        """
        if self.order not in ORDERS:
            raise BadOption(f"order={self.order!r} is unknown; use {' or '.join(ORDERS)}")
        return BoundPolicy(
            columns=tuple(schema.names),
            evaluate=lambda inputs: _Rounds(self, inputs, schema).run(),
            asks_retrieved=True,
        )


def vectorised(check: CheckPairs, *, order: str = NEWEST, distance: bool = False) -> Vectorised:
    """
    Make a policy for `Queue.load` from a check of many pairs of messages at once.

    Source: Herzner, Message Queue Patterns, Smart-Message Queue: the method *check* of a message,
    and the variant in which the queue evaluates the messages.

    Args:
        check: Called with two tables of the same number of rows: the new and the queued message of
            each pair. Both have the queue's columns. The second also has ``_retrieved`` (bool:
            the queued message is in flight) and, with *distance*, ``_distance`` (int64: how many
            waiting messages of the shard stand between the two). Returns an Arrow array with the
            text of a `Decision` for each pair.
        order: Which queued message of the key is asked first: ``"newest"`` (default) or
            ``"oldest"``.
        distance: Whether *check* needs ``_distance``; default False. This takes longer, because
            rounds then have one message per shard instead of one per key.

    Returns:
        The policy. An unknown order, or an answer that is not a decision, is a `BadOption` when
        messages are loaded.
    """
    return Vectorised(check, order, distance)


def per_message(check: Check, *, order: str = NEWEST) -> Vectorised:
    """
    Make a policy for `Queue.load` from a check of one pair of messages.

    Source: Herzner, Message Queue Patterns, Smart-Message Queue: the method *check* of a message.

    Args:
        check: Called with a new and a queued message of the same key, as dicts. The queued one also
            has ``_retrieved`` (it is in flight) and ``_distance`` (how many waiting messages of the
            shard stand between the two). Returns a `Decision`.
        order: Which queued message of the key is asked first: ``"newest"`` (default) or
            ``"oldest"``.

    Returns:
        The policy. An unknown order, or an answer that is not a decision, is a `BadOption` when
        messages are loaded.
    """

    def check_pairs(new: pa.Table, queued: pa.Table) -> pa.Array:
        pairs = zip(new.to_pylist(), queued.to_pylist(), strict=True)
        # A check of single messages must be called for each pair.
        return pa.array([_text(check(one, other)) for one, other in pairs], pa.string())

    return Vectorised(check_pairs, order, distance=True)


class _Rounds:
    """All rounds over one input. Messages are numbered: the queued ones first, then the new."""

    def __init__(self, policy: Vectorised, inputs: PolicyInput, schema: pa.Schema) -> None:
        self._policy = policy
        self._inputs = inputs
        names = schema.names
        self._rows = pa.concat_tables([inputs.queued.select(names), inputs.new.select(names)])
        self._queued = len(inputs.queued_keys)
        keys = np.concatenate([inputs.queued_keys, inputs.new_keys])
        #: The messages grouped by key, in order; and the position of each message in there.
        self._by_key = np.argsort(keys, kind="stable")
        self._spot = np.empty(len(keys), np.int64)
        self._spot[self._by_key] = np.arange(len(keys))
        self._keys = keys
        self._present = np.concatenate(
            [np.ones(self._queued, np.bool_), np.zeros(len(inputs.new_keys), np.bool_)]
        )
        self._retrieved = np.concatenate(
            [inputs.retrieved, np.zeros(len(inputs.new_keys), np.bool_)]
        )
        self._consulted = np.zeros(self._queued, np.bool_)

    def run(self) -> PolicyResult:
        inputs = self._inputs
        groups = inputs.new_shards if self._policy.distance else inputs.new_keys
        rounds = ranks(groups)
        order = np.argsort(rounds, kind="stable")
        bounds = np.searchsorted(rounds[order], np.arange(int(rounds.max(initial=-1)) + 2))
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            self._decide(order[start:stop])
        deleted = ~self._present[: self._queued]
        return PolicyResult(
            kept=self._present[self._queued :],
            deleted=np.flatnonzero(deleted),
            consulted=np.flatnonzero(self._consulted & ~deleted),
        )

    def _decide(self, new: Numbers) -> None:
        """Ask about some new messages, of different keys, until each has a decision."""
        mine = new + self._queued
        at = self._spot[mine] if self._policy.order == NEWEST else self._begin(mine)
        step = -1 if self._policy.order == NEWEST else 1
        at = at + min(step, 0)
        while len(mine):
            at, inside = self._next(mine, at, step)
            self._present[mine[~inside]] = True
            mine, at = mine[inside], at[inside]
            if not len(mine):
                return
            asked = self._by_key[at]
            decisions = self._ask(mine, asked)
            cares = decisions != _CODES[Decision.DONT_CARE]
            self._present[mine[cares]] = _QUEUES[decisions[cares]]
            decided = asked[cares]
            self._present[decided[_DELETES[decisions[cares]]]] = False
            self._consulted[decided[decided < self._queued]] = True
            mine, at = mine[~cares], at[~cares] + step

    def _begin(self, mine: Numbers) -> Numbers:
        ordered = self._keys[self._by_key]
        return np.searchsorted(ordered, self._keys[mine])

    def _next(self, mine: Numbers, at: Numbers, step: int) -> tuple[Numbers, Flags]:
        """Find the next present message of the key, and whether there is one."""
        while True:
            safe = np.clip(at, 0, len(self._by_key) - 1)
            other = self._by_key[safe]
            inside = (at == safe) & (self._keys[other] == self._keys[mine])
            inside &= at < self._spot[mine]
            skipped = inside & ~self._present[other]
            if not skipped.any():
                return at, inside
            at = at + step * skipped

    def _ask(self, mine: Numbers, asked: Numbers) -> Numbers:
        queued = self._rows.take(pa.array(asked))
        queued = queued.append_column(RETRIEVED, pa.array(self._retrieved[asked]))
        if self._policy.distance:
            queued = queued.append_column(DISTANCE, pa.array(self._distances(mine, asked)))
        answers = self._policy.check(self._rows.take(pa.array(mine)), queued)
        return _coded(answers, len(mine))

    def _distances(self, mine: Numbers, asked: Numbers) -> Numbers:
        """Count the waiting messages of the shard between two. New ones come after queued ones."""
        inputs, split = self._inputs, self._queued
        gone = ~self._present[:split] & ~inputs.retrieved
        distances = np.empty(len(mine), np.int64)
        for row, (one, other) in enumerate(
            zip((mine - split).tolist(), asked.tolist(), strict=True)
        ):
            shard = inputs.new_shards[one]
            first = max(other - split + 1, 0)
            between = self._present[split + first : split + one]
            count = np.count_nonzero(between & (inputs.new_shards[first:one] == shard))
            if other < split:
                left = gone[other + 1 :] & (inputs.queued_shards[other + 1 :] == shard)
                count += int(inputs.waiting_after[other]) - np.count_nonzero(left)
            distances[row] = count
        return distances


def _coded(answers: Any, count: int) -> Numbers:
    if not isinstance(answers, pa.Array | pa.ChunkedArray) or len(answers) != count:
        raise BadOption(
            f"policy: a check must return an Arrow array of decisions, {count} for {count} pairs"
        )
    codes = pa.array([*_CODES])
    found = pc.index_in(answers.cast(pa.string()), value_set=codes)
    if found.null_count:
        strange = answers.filter(pc.is_null(found))[0].as_py()
        raise BadOption(f"policy: {strange!r} is not a decision; use {', '.join(_CODES)}")
    numbers: Numbers = np.asarray(found).astype(np.int64)
    return numbers


def _text(answer: Any) -> str:
    if not isinstance(answer, str) or answer not in _CODES:
        hint = nearest(str(answer), _CODES)
        raise BadOption(f"policy: {answer!r} is not a decision{hint}; use {', '.join(_CODES)}")
    return Decision(answer).value
