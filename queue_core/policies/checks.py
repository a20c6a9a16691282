"""A user's own policy: a function that is asked about pairs of messages, round by round.

In each round at most one new message of each key is decided, so that all keys are asked about at
once. Where a function wants to know how far messages stand from each other, it is one of each
shard, since others of the shard count.
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

#: What a queued message tells besides its columns.
RETRIEVED, DISTANCE = "_retrieved", "_distance"

#: Asked about one new and one queued message, as dicts.
Check: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Decision]
#: Asked about pairs: row by row of two tables. It gives the texts of `Decision`.
CheckPairs: TypeAlias = Callable[[pa.Table, pa.Table], "pa.Array | pa.ChunkedArray"]

_CODES = {decision.value: code for code, decision in enumerate(Decision)}
_DECISIONS = list(Decision)
_QUEUES = np.array([decision.queues for decision in _DECISIONS])
_DELETES = np.array([decision.deletes for decision in _DECISIONS])


@dataclass(frozen=True, slots=True)
class Vectorised:
    """A check of pairs; see `vectorised`."""

    check: CheckPairs
    order: str = NEWEST
    distance: bool = False

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """It is shown all columns of the queue."""
        if self.order not in ORDERS:
            raise BadOption(f"order={self.order!r}; use {' or '.join(ORDERS)}")
        return BoundPolicy(
            columns=tuple(schema.names),
            evaluate=lambda inputs: _Rounds(self, inputs, schema).verdict(),
            asks_retrieved=True,
        )


def vectorised(check: CheckPairs, *, order: str = NEWEST, distance: bool = False) -> Vectorised:
    """
    A policy for `Queue.load`: *check* is given the new messages and the queued ones of pairs.

    Two tables of as many rows, of the queue's columns; that of queued ones also has ``_retrieved``
    (whether it is in flight) and, with *distance*, ``_distance`` (how many messages that wait in
    its shard stand between the two). It returns a decision for each pair.
    """
    return Vectorised(check, order, distance)


def per_message(check: Check, *, order: str = NEWEST) -> Vectorised:
    """A policy for `Queue.load`: *check* is given a new message and a queued one, as dicts."""

    def check_pairs(new: pa.Table, queued: pa.Table) -> pa.Array:
        pairs = zip(new.to_pylist(), queued.to_pylist(), strict=True)
        # A function for single messages is called for each of them.
        return pa.array([_text(check(mine, its)) for mine, its in pairs], pa.string())

    return Vectorised(check_pairs, order, distance=True)


class _Rounds:
    """All rounds over one inputs. Queued messages come first, then new ones, by their numbers."""

    def __init__(self, policy: Vectorised, inputs: PolicyInput, schema: pa.Schema) -> None:
        self._policy = policy
        self._inputs = inputs
        names = schema.names
        self._rows = pa.concat_tables([inputs.queued.select(names), inputs.new.select(names)])
        self._queued = len(inputs.queued_keys)
        keys = np.concatenate([inputs.queued_keys, inputs.new_keys])
        #: The messages of each key side by side, in order; and where each of them stands there.
        self._by_key = np.argsort(keys, kind="stable")
        self._spot = np.empty(len(keys), np.int64)
        self._spot[self._by_key] = np.arange(len(keys))
        self._keys = keys
        self._there = np.concatenate(
            [np.ones(self._queued, np.bool_), np.zeros(len(inputs.new_keys), np.bool_)]
        )
        self._retrieved = np.concatenate(
            [inputs.retrieved, np.zeros(len(inputs.new_keys), np.bool_)]
        )
        self._asked = np.zeros(self._queued, np.bool_)

    def verdict(self) -> PolicyResult:
        inputs = self._inputs
        groups = inputs.new_shards if self._policy.distance else inputs.new_keys
        turns = ranks(groups)
        order = np.argsort(turns, kind="stable")
        bounds = np.searchsorted(turns[order], np.arange(int(turns.max(initial=-1)) + 2))
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            self._decide(order[start:stop])
        deleted = ~self._there[: self._queued]
        return PolicyResult(
            kept=self._there[self._queued :],
            deleted=np.flatnonzero(deleted),
            consulted=np.flatnonzero(self._asked & ~deleted),
        )

    def _decide(self, new: Numbers) -> None:
        """Ask for each of some new messages, of different keys, until someone cares."""
        mine = new + self._queued
        at = self._spot[mine] if self._policy.order == NEWEST else self._begin(mine)
        step = -1 if self._policy.order == NEWEST else 1
        at = at + min(step, 0)
        while len(mine):
            at, inside = self._next(mine, at, step)
            self._there[mine[~inside]] = True
            mine, at = mine[inside], at[inside]
            if not len(mine):
                return
            asked = self._by_key[at]
            decisions = self._ask(mine, asked)
            cares = decisions != _CODES[Decision.DONT_CARE]
            self._there[mine[cares]] = _QUEUES[decisions[cares]]
            decided = asked[cares]
            self._there[decided[_DELETES[decisions[cares]]]] = False
            self._asked[decided[decided < self._queued]] = True
            mine, at = mine[~cares], at[~cares] + step

    def _begin(self, mine: Numbers) -> Numbers:
        ordered = self._keys[self._by_key]
        return np.searchsorted(ordered, self._keys[mine])

    def _next(self, mine: Numbers, at: Numbers, step: int) -> tuple[Numbers, Flags]:
        """The next message of the key that is there, and whether there is one."""
        while True:
            safe = np.clip(at, 0, len(self._by_key) - 1)
            other = self._by_key[safe]
            inside = (at == safe) & (self._keys[other] == self._keys[mine])
            inside &= at < self._spot[mine]
            skipped = inside & ~self._there[other]
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
        """How many that wait in the shard stand between: new ones behind the queued ones."""
        inputs, split = self._inputs, self._queued
        gone = ~self._there[:split] & ~inputs.retrieved
        distances = np.empty(len(mine), np.int64)
        for row, (one, other) in enumerate(
            zip((mine - split).tolist(), asked.tolist(), strict=True)
        ):
            shard = inputs.new_shards[one]
            first = max(other - split + 1, 0)
            between = self._there[split + first : split + one]
            count = np.count_nonzero(between & (inputs.new_shards[first:one] == shard))
            if other < split:
                left = gone[other + 1 :] & (inputs.queued_shards[other + 1 :] == shard)
                count += int(inputs.waiting_after[other]) - np.count_nonzero(left)
            distances[row] = count
        return distances


def _coded(answers: Any, count: int) -> Numbers:
    if not isinstance(answers, pa.Array | pa.ChunkedArray) or len(answers) != count:
        raise BadOption(
            f"policy: a check returns an Arrow array of decisions, {count} for {count} pairs"
        )
    codes = pa.array([*_CODES])
    found = pc.index_in(answers.cast(pa.string()), value_set=codes)
    if found.null_count:
        strange = answers.filter(pc.is_null(found))[0].as_py()
        raise BadOption(f"policy: {strange!r} is no decision; use {', '.join(_CODES)}")
    numbers: Numbers = np.asarray(found).astype(np.int64)
    return numbers


def _text(answer: Any) -> str:
    if not isinstance(answer, str) or answer not in _CODES:
        hint = nearest(str(answer), _CODES)
        raise BadOption(f"policy: {answer!r} is no decision{hint}; use {', '.join(_CODES)}")
    return Decision(answer).value
