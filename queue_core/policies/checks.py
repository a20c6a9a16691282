"""A user's own policy: a check function, called with pairs of messages, round by round.

Each round decides about at most one new message of each key, and so covers all keys at once. With
distances, a round has one message of each shard, because distances count all messages of the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from queue_core.errors import BadOption
from queue_core.policies.answers import (
    CODES,
    DECISIONS,
    Answers,
    Indicators,
    answers_of,
    answers_one_by_one,
)
from queue_core.policies.decisions import NEWEST, ORDERS, Decision
from queue_core.policies.inputs import BoundPolicy, Flags, Overwritten, PolicyInput, PolicyResult
from queue_core.policies.numbering import ranks
from queue_core.values.failure_kinds import reason_of
from queue_core.values.rows import Numbers

#: Columns of queued messages that a check sees in addition to those of the queue.
RETRIEVED, DISTANCE = "_retrieved", "_distance"

#: Decides about one new and one queued message, as dicts: a `Decision`, alone or with new values of
#: the queued message.
Check: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
#: Decides about pairs, row by row of two tables; returns texts of `Decision`, or a table of them
#: with new values of the queued messages.
CheckPairs: TypeAlias = Callable[[pa.Table, pa.Table], "pa.Array | pa.ChunkedArray | pa.Table"]

_QUEUES = np.array([decision.queues for decision in DECISIONS])
_DELETES = np.array([decision.deletes for decision in DECISIONS])
_STAYS = np.array([one in (Decision.IGNORE, Decision.QUEUE) for one in DECISIONS])
#: The most chunks of a table that are read one by one; more are combined.
_MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Vectorised:
    """
    A policy with a user's own check of pairs; made by `vectorised` and `per_message`.

    Args:
        check: As for `vectorised`.
        order: As for `vectorised`.
        distance: As for `vectorised`.
        indicators: As for `vectorised`.
        pairs: Whether *check* takes tables; otherwise it takes one new and one queued message.
    """

    check: CheckPairs | Check
    order: str = NEWEST
    distance: bool = False
    indicators: Indicators = field(default_factory=dict)
    pairs: bool = True

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """
        Prepare the check for a queue; it sees all columns.

        Args:
            schema: The queue's columns.
            key: The queue's key column; None to ask all queued messages.

        Returns:
            The policy, ready for the queue's messages.

        Raises:
            BadOption: The order is unknown, or an indicator stands for no decision.
        """
        if self.order not in ORDERS:
            raise BadOption(f"order={self.order!r} is unknown; use {' or '.join(ORDERS)}")
        for own, meant in self.indicators.items():
            if meant not in CODES:
                raise BadOption(f"indicators: {own!r} stands for {meant!r}; use {', '.join(CODES)}")
        return BoundPolicy(
            columns=tuple(schema.names),
            evaluate=lambda inputs: _Rounds(self, inputs, schema, key).run(),
            asks_retrieved=True,
        )


def vectorised(
    check: CheckPairs,
    *,
    order: str = NEWEST,
    distance: bool = False,
    indicators: Indicators | None = None,
) -> Vectorised:
    """
    Make a policy for `Queue.load` from a check of many pairs of messages at once.

    Source: Herzner, Message Queue Patterns, Smart-Message Queue: the method *check* of a message,
    and the variant in which the queue evaluates the messages.

    Args:
        check: Called with two tables of the same number of rows: the new and the queued message of
            each pair. Both have the queue's columns. The second also has ``_retrieved`` (bool:
            the queued message is in flight) and, with *distance*, ``_distance`` (int64: how many
            waiting messages of the shard stand between the two). Returns an Arrow array with the
            text of a `Decision` for each pair; or a table with the column ``decision``, and the
            column ``values`` (struct): new values of columns of the queued message, null if it
            stays as it is.
        order: Which queued message of the key is asked first: ``"newest"`` (default) or
            ``"oldest"``.
        distance: Whether *check* needs ``_distance``; default False. This takes longer, because
            rounds then have one message per shard instead of one per key.
        indicators: Other texts that *check* may return, each with the `Decision` that it stands
            for. By default, none.

    Returns:
        The policy. An unknown order, or an answer that is not a decision, is a `BadOption` when
        messages are loaded.
    """
    return Vectorised(check, order, distance, indicators or {})


def per_message(
    check: Check, *, order: str = NEWEST, indicators: Indicators | None = None
) -> Vectorised:
    """
    Make a policy for `Queue.load` from a check of one pair of messages.

    Source: Herzner, Message Queue Patterns, Smart-Message Queue: the method *check* of a message.

    Args:
        check: Called with a new and a queued message of the same key, as dicts. The queued one also
            has ``_retrieved`` (it is in flight) and ``_distance`` (how many waiting messages of the
            shard stand between the two). Returns a `Decision`; or a pair of `Decision.IGNORE` or
            `Decision.QUEUE` and a dict with new values of the queued message, which takes them
            over. A message in flight cannot get other values.
        order: Which queued message of the key is asked first: ``"newest"`` (default) or
            ``"oldest"``.
        indicators: Other answers that *check* may give, each with the `Decision` that it stands
            for. By default, none.

    Returns:
        The policy. An unknown order, or an answer that is not a decision, is a `BadOption` when
        messages are loaded.
    """
    return Vectorised(check, order, distance=True, indicators=indicators or {}, pairs=False)


class _Rounds:
    """All rounds over one input. Messages are numbered: the queued ones first, then the new."""

    def __init__(
        self, policy: Vectorised, inputs: PolicyInput, schema: pa.Schema, key: str | None
    ) -> None:
        self._policy = policy
        self._inputs = inputs
        self._schema = schema
        self._key = key
        names = schema.names
        self._rows = pa.concat_tables([inputs.queued.select(names), inputs.new.select(names)])
        #: The row of each message: another one after it has taken over values.
        self._row = np.arange(self._rows.num_rows)
        #: The same rows as dicts, for a check of single messages.
        self._dicts: list[dict[str, Any]] | None = None
        #: The columns in which messages have taken over values.
        self._changed: set[str] = set()
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
            overwritten=self._overwritten(0, self._queued),
            overwritten_new=self._overwritten(self._queued, len(self._keys)),
        )

    def _overwritten(self, start: int, stop: int) -> Overwritten:
        """Return the present messages of a range that have taken over values."""
        if not self._changed:
            return Overwritten()
        first = len(self._keys)
        rows = np.flatnonzero(self._present[start:stop] & (self._row[start:stop] >= first))
        table = self._rows.take(pa.array(self._row[start:stop][rows]))
        return Overwritten(
            rows=rows,
            values={name: table.column(name).combine_chunks() for name in sorted(self._changed)},
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
            answers = self._ask(mine, asked)
            decisions = answers.decisions
            self._take_over(asked, answers)
            cares = decisions != CODES[Decision.DONT_CARE]
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

    def _ask(self, mine: Numbers, asked: Numbers) -> Answers:
        policy = self._policy
        if not policy.pairs:
            return self._ask_one_by_one(mine, asked)
        queued = self._rows.take(pa.array(self._row[asked]))
        queued = queued.append_column(RETRIEVED, pa.array(self._retrieved[asked]))
        if policy.distance:
            queued = queued.append_column(DISTANCE, pa.array(self._distances(mine, asked)))
        new = self._rows.take(pa.array(mine))
        answers = _called(policy.check, new, queued)
        return answers_of(answers, len(mine), self._schema, self._key, policy.indicators)

    def _ask_one_by_one(self, mine: Numbers, asked: Numbers) -> Answers:
        if self._dicts is None:
            self._dicts = self._rows.to_pylist()
        new = [dict(self._dicts[number]) for number in mine.tolist()]
        queued = [
            {**self._dicts[row], RETRIEVED: retrieved, DISTANCE: distance}
            for row, retrieved, distance in zip(
                self._row[asked].tolist(),
                self._retrieved[asked].tolist(),
                self._distances(mine, asked).tolist(),
                strict=True,
            )
        ]
        # A check of single messages must be called for each pair.
        answers = list(map(partial(_called, self._policy.check), new, queued))
        return answers_one_by_one(answers, queued, self._schema, self._key, self._policy.indicators)

    def _take_over(self, asked: Numbers, answers: Answers) -> None:
        """Give queued messages their new values; raises `BadOption`."""
        if not len(answers.pairs):
            return
        changed = asked[answers.pairs]
        if not _STAYS[answers.decisions[answers.pairs]].all():
            raise BadOption(
                "policy: a check may give new values of a queued message only with the decisions "
                f"{Decision.IGNORE.value!r} and {Decision.QUEUE.value!r}"
            )
        if self._retrieved[changed].any():
            raise BadOption(
                f"policy: a check gives new values of a message in flight; look at {RETRIEVED!r} "
                "first, because its consumer has the old ones"
            )
        rows = self._rows.take(pa.array(self._row[changed]))
        for name in answers.values.column_names:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), answers.values.column(name))
        self._row[changed] = self._rows.num_rows + np.arange(len(changed))
        self._rows = pa.concat_tables([self._rows, rows])
        if self._dicts is not None:
            self._dicts += rows.to_pylist()
        if self._rows.column(0).num_chunks > _MOST_PARTS:
            self._rows = self._rows.combine_chunks()
        self._changed.update(answers.values.column_names)

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


def _called(check: Check, new: Any, queued: Any) -> Any:
    """Call a user's own check; raises `BadOption` for its exception."""
    try:
        return check(new, queued)
    except Exception as error:
        raise BadOption(f"policy: the check raised {reason_of(error)}") from error
