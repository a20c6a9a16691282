"""The policies that are built in, as values; each is worked out for all messages at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from queue_core.errors import BadOption, BadSelector
from queue_core.names import nearest
from queue_core.policies.aggregates import Take
from queue_core.policies.decisions import NEWEST, OLDEST, ORDERS
from queue_core.policies.inputs import BoundPolicy, Flags, PolicyInput, PolicyResult
from queue_core.policies.matching import cancel
from queue_core.policies.merging import merged
from queue_core.policies.numbering import check_comparable, first_of, last_of, matched, ranks
from queue_core.rows import Numbers
from queue_core.selector import Selector


class Policy(Protocol):
    """What is done about new and queued messages of one key."""

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Make it ready for the messages of a queue; raises `BadOption`."""


@dataclass(frozen=True, slots=True)
class Latest:
    """A new message takes the place of a queued one, and goes to the end of the queue."""

    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Any queue will do."""
        _check_order(self.order)
        return BoundPolicy(columns=(), evaluate=self._evaluate)

    def _evaluate(self, inputs: PolicyInput) -> PolicyResult:
        waiting = inputs.waiting
        queued = inputs.queued_keys[waiting]
        if self.order == NEWEST:
            kept = last_of(inputs.new_keys, inputs.keys)[inputs.new_keys] == np.arange(
                len(inputs.new_keys)
            )
            newest = last_of(queued, inputs.keys, waiting)
            return PolicyResult(kept=kept, deleted=newest[newest >= 0])
        # Each new one takes the oldest away, also of those before it; an empty queue has none yet.
        there = np.bincount(queued, minlength=inputs.keys)
        gone = np.bincount(inputs.new_keys, minlength=inputs.keys) - (there == 0)
        kept = there[inputs.new_keys] + ranks(inputs.new_keys) >= gone[inputs.new_keys]
        return PolicyResult(kept=kept, deleted=waiting[ranks(queued) < gone[queued]])


@dataclass(frozen=True, slots=True)
class DropDuplicates:
    """A new message that is like a queued one is left out."""

    #: By these columns; none: by all.
    columns: tuple[str, ...] = ()
    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Raises `BadOption` for a column that is not there or cannot be compared."""
        _check_order(self.order)
        names = tuple(name for name in self.columns or schema.names if name != key)
        for name in names:
            if name not in schema.names:
                raise BadOption(
                    f"drop_duplicates: {name!r} is no column of the queue"
                    f"{nearest(name, schema.names)}"
                )
        check_comparable("drop_duplicates", schema, names)
        return BoundPolicy(columns=names, evaluate=lambda inputs: self._evaluate(inputs, names))

    def _evaluate(self, inputs: PolicyInput, names: tuple[str, ...]) -> PolicyResult:
        waiting = inputs.waiting
        new, queued = matched(
            _with_keys(inputs.new, inputs.new_keys),
            _with_keys(inputs.queued, inputs.queued_keys).take(pa.array(waiting)),
            ["", *names],
        )
        alike = queued >= 0
        find = last_of if self.order == NEWEST else first_of
        count = int(new.max(initial=-1)) + 1
        found = find(queued[alike], count, waiting[alike])
        first = first_of(new, count)[new] == np.arange(len(new))
        return PolicyResult(kept=first & (found[new] < 0), consulted=found[found >= 0])


@dataclass(frozen=True, slots=True)
class Merge:
    """A queued message takes over values of a new one, which is left out."""

    takes: tuple[Take, ...]
    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Raises `BadOption` for a column that cannot be taken over so."""
        _check_order(self.order)
        columns = _check_takes("merge", self.takes, schema, key)
        return BoundPolicy(columns=columns, evaluate=self._evaluate)

    def _evaluate(self, inputs: PolicyInput) -> PolicyResult:
        waiting = inputs.waiting
        find = last_of if self.order == NEWEST else first_of
        into = find(inputs.queued_keys[waiting], inputs.keys, waiting)
        return merged(inputs, self.takes, into, inputs.new_keys)


@dataclass(frozen=True, slots=True)
class MergeAdjacent:
    """As `Merge`, if no other message of the shard was queued in between."""

    takes: tuple[Take, ...]

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Raises `BadOption` for a column that cannot be taken over so."""
        columns = _check_takes("merge_adjacent", self.takes, schema, key)
        return BoundPolicy(columns=columns, evaluate=self._evaluate, asks_last_only=True)

    def _evaluate(self, inputs: PolicyInput) -> PolicyResult:
        order = np.argsort(inputs.new_shards, kind="stable")
        shards, keys = inputs.new_shards[order], inputs.new_keys[order]
        begins = (np.diff(shards, prepend=-1) != 0) | (np.diff(keys, prepend=-1) != 0)
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(begins) - 1
        # The last that waits is adjacent to the first new one of its shard.
        last = np.flatnonzero(~inputs.retrieved & (inputs.waiting_after == 0))
        opens = np.flatnonzero(np.diff(shards, prepend=-1) != 0)
        before = last_of(inputs.queued_shards[last], int(shards.max(initial=0)) + 1, last)
        into = np.full(int(begins.sum()), -1, np.int64)
        queued = before[shards[opens]]
        same = (queued >= 0) & (inputs.queued_keys[queued] == keys[opens]) if len(last) else False
        into[group[order[opens]]] = np.where(same, queued, -1)
        return merged(inputs, self.takes, into, group)


@dataclass(frozen=True, slots=True)
class Annihilate:
    """A new *off* message takes a waiting *on* message away, and is left out itself."""

    on: str
    off: str
    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Raises `BadOption` for a condition that cannot be understood."""
        _check_order(self.order)
        on, off = _condition(self.on, schema), _condition(self.off, schema)
        columns = tuple(sorted(on.columns | off.columns))
        return BoundPolicy(columns=columns, evaluate=lambda inputs: self._evaluate(inputs, on, off))

    def _evaluate(self, inputs: PolicyInput, on: Selector, off: Selector) -> PolicyResult:
        waiting = inputs.waiting
        queued = inputs.queued.take(pa.array(waiting))
        # What meets both is an off.
        opens = waiting[_met(on, queued) & ~_met(off, queued)]
        closes = _met(off, inputs.new)
        met = cancel(
            inputs.queued_keys[opens],
            inputs.new_keys,
            _met(on, inputs.new) & ~closes,
            closes,
            inputs.keys,
            self.order,
        )
        return PolicyResult(kept=~(met.opened | met.closed), deleted=opens[met.queued])


@dataclass(frozen=True, slots=True)
class Confirm:
    """A new message that meets a condition takes the oldest of its key away, and is left out."""

    condition: str

    def bind(self, schema: pa.Schema, key: str) -> BoundPolicy:
        """Raises `BadOption` for a condition that cannot be understood."""
        condition = _condition(self.condition, schema)
        return BoundPolicy(
            columns=tuple(sorted(condition.columns)),
            evaluate=lambda inputs: self._evaluate(inputs, condition),
            asks_retrieved=True,
        )

    def _evaluate(self, inputs: PolicyInput, condition: Selector) -> PolicyResult:
        # What confirms is not confirmed itself.
        plain = ~_met(condition, inputs.queued)
        opens = np.concatenate(
            [np.flatnonzero(plain & inputs.retrieved), np.flatnonzero(plain & ~inputs.retrieved)]
        )
        closes = _met(condition, inputs.new)
        met = cancel(
            inputs.queued_keys[opens], inputs.new_keys, ~closes, closes, inputs.keys, OLDEST
        )
        return PolicyResult(kept=~(met.opened | met.closed), deleted=opens[met.queued])


def _with_keys(rows: pa.Table, keys: Numbers) -> pa.Table:
    """Rows that may have no column but their key, whose number has no name."""
    return pa.table({"": keys} | {name: rows.column(name) for name in rows.column_names})


def _condition(text: str, schema: pa.Schema) -> Selector:
    try:
        return Selector.parse(text, schema)
    except BadSelector as error:
        raise BadOption(f"policy: {error}") from error


def _met(condition: Selector, rows: pa.Table) -> Flags:
    met: Flags = condition.mask(rows).to_numpy(zero_copy_only=False)
    return met


def _check_takes(
    what: str, takes: tuple[Take, ...], schema: pa.Schema, key: str
) -> tuple[str, ...]:
    columns = [take.column for take in takes]
    if not columns:
        raise BadOption(f"{what}: say what is taken over, as in {what}(sum(amount), last(state))")
    for take in takes:
        take.check(schema, key)
        if columns.count(take.column) > 1:
            raise BadOption(f"{what}: column {take.column!r} is taken over twice")
    return tuple(columns)


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise BadOption(f"order={order!r}{nearest(str(order), ORDERS)}; use {' or '.join(ORDERS)}")
