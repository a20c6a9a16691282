"""The built-in policies, as values; each decides about all messages at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from queue_core.errors import BadOption, BadSelector
from queue_core.policies.aggregates import Take
from queue_core.policies.decisions import NEWEST, OLDEST, ORDERS
from queue_core.policies.inputs import BoundPolicy, Flags, Overwritten, PolicyInput, PolicyResult
from queue_core.policies.numbering import check_comparable, first_of, last_of, matched, ranks
from queue_core.selector import Selector
from queue_core.values.names import nearest
from queue_core.values.rows import Numbers


class Policy(Protocol):
    """A rule for new and queued messages of one key."""

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue's schema and key; raises `BadOption`."""


@dataclass(frozen=True, slots=True)
class Latest:
    """
    Replace a waiting message by a new one of the same key, which goes to the end of the queue.

    The text form is ``latest`` or ``latest(order => oldest)``. Source: Herzner, Message Queue
    Patterns, Smart-Message Queue: a progress report overrides the one before.

    Args:
        order: Which waiting message is replaced: ``"newest"`` (default) or ``"oldest"``.
    """

    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue; raises `BadOption`."""
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
        # Each new message deletes the oldest one, which may be an earlier new one. If none waits,
        # the first new message deletes nothing.
        waiting_count = np.bincount(queued, minlength=inputs.keys)
        gone = np.bincount(inputs.new_keys, minlength=inputs.keys) - (waiting_count == 0)
        kept = waiting_count[inputs.new_keys] + ranks(inputs.new_keys) >= gone[inputs.new_keys]
        return PolicyResult(kept=kept, deleted=waiting[ranks(queued) < gone[queued]])


@dataclass(frozen=True, slots=True)
class DropDuplicates:
    """
    Leave out a new message if a waiting message of the same key has the same values.

    NULL equals NULL. The text form is ``drop_duplicates``, ``drop_duplicates(text, amount)`` or
    ``drop_duplicates(order => oldest)``. Source: Herzner, Message Queue Patterns, Smart-Message
    Queue: the decision *ignore*, for an unnecessary repetition.

    Args:
        columns: Names of the columns to compare; by default all columns of the queue. Arrays and
            maps cannot be compared.
        order: Which waiting message is compared first: ``"newest"`` (default) or ``"oldest"``.
    """

    columns: tuple[str, ...] = ()
    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue; raises `BadOption`."""
        _check_order(self.order)
        names = tuple(name for name in self.columns or schema.names if name != key)
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
    """
    Merge a new message into a waiting message of the same key. The new message is left out.

    The waiting message keeps its id, its place, its time of loading, and its values in columns that
    are not named. The text form is ``merge(sum(amount), last(text))``. Source: Herzner, Message
    Queue Patterns, Smart-Message Queue: the queued message has "taken over its values".

    Args:
        takes: How each column is merged, one `Take` per column; at least one. Other columns keep
            the value of the waiting message.
        order: Which waiting message takes the values: ``"newest"`` (default) or ``"oldest"``.
    """

    takes: tuple[Take, ...]
    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue; raises `BadOption`."""
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
    """
    Merge a new message into the last waiting message of its shard, if both have the same key.

    Otherwise the new message is queued. Messages of other shards do not come in between: if they
    should, create the queue with ``shards=1``. The text form is ``merge_adjacent(count(times))``.
    Source: Herzner, Message Queue Patterns, Smart-Message Queue: repeated events count their
    occurrences.

    Args:
        takes: How each column is merged, one `Take` per column; at least one. Other columns keep
            the value of the waiting message.
    """

    takes: tuple[Take, ...]

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue; raises `BadOption`."""
        columns = _check_takes("merge_adjacent", self.takes, schema, key)
        return BoundPolicy(columns=columns, evaluate=self._evaluate, asks_last_only=True)

    def _evaluate(self, inputs: PolicyInput) -> PolicyResult:
        order = np.argsort(inputs.new_shards, kind="stable")
        shards, keys = inputs.new_shards[order], inputs.new_keys[order]
        begins = (np.diff(shards, prepend=-1) != 0) | (np.diff(keys, prepend=-1) != 0)
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(begins) - 1
        # The last waiting message is adjacent to the first new one of its shard.
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
    """
    Treat messages of a key as pairs of *on* and *off* that delete each other.

    A new *off* message deletes a waiting *on* message and is left out. If no *on* message waits,
    because it was fired already or never loaded, the *off* message is queued. A message that meets
    both conditions counts as *off*. The text form is
    ``annihilate(text = 'on', text = 'off')``. Source: Herzner, Message Queue Patterns,
    Smart-Message Queue: an "off" arrives while the "on" is still queued.

    Args:
        on: The condition of *on* messages, as a selector over the queue's columns.
        off: The condition of *off* messages, as a selector over the queue's columns.
        order: Which waiting *on* message is deleted first: ``"newest"`` (default) or ``"oldest"``.
    """

    on: str
    off: str
    order: str = NEWEST

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue; raises `BadOption`."""
        _check_order(self.order)
        on, off = _condition(self.on, schema), _condition(self.off, schema)
        columns = tuple(sorted(on.columns | off.columns))
        return BoundPolicy(columns=columns, evaluate=lambda inputs: self._evaluate(inputs, on, off))

    def _evaluate(self, inputs: PolicyInput, on: Selector, off: Selector) -> PolicyResult:
        waiting = inputs.waiting
        queued = inputs.queued.take(pa.array(waiting))
        # A message that meets both conditions is an off.
        opens = waiting[_met(on, queued) & ~_met(off, queued)]
        closes = _met(off, inputs.new)
        return cancel(inputs, opens, _met(on, inputs.new) & ~closes, closes, self.order)


@dataclass(frozen=True, slots=True)
class Confirm:
    """
    Treat new messages that meet a condition as confirmations of earlier messages.

    A confirmation deletes one message of its key: the oldest in flight, or, if none is in flight,
    the oldest that waits. The confirmation itself is then left out. If there is no message to
    delete, the confirmation is queued. A confirmation never deletes another confirmation. The text
    form is ``confirm(text = 'ack')``. Source: Herzner, Message Queue Patterns, Smart-Message Queue,
    resend control: an acknowledgement removes the message that was kept until then.

    Args:
        condition: A selector over the queue's columns. Messages that meet it are confirmations.
    """

    condition: str

    def bind(self, schema: pa.Schema, key: str | None) -> BoundPolicy:
        """Check the policy against a queue; raises `BadOption`."""
        condition = _condition(self.condition, schema)
        return BoundPolicy(
            columns=tuple(sorted(condition.columns)),
            evaluate=lambda inputs: self._evaluate(inputs, condition),
            asks_retrieved=True,
        )

    def _evaluate(self, inputs: PolicyInput, condition: Selector) -> PolicyResult:
        # Confirming messages are not confirmed themselves.
        plain = ~_met(condition, inputs.queued)
        opens = np.concatenate(
            [np.flatnonzero(plain & inputs.retrieved), np.flatnonzero(plain & ~inputs.retrieved)]
        )
        closes = _met(condition, inputs.new)
        return cancel(inputs, opens, ~closes, closes, OLDEST)


def _with_keys(rows: pa.Table, keys: Numbers) -> pa.Table:
    """Return rows with the number of their key as a column without a name."""
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
    policy: str, takes: tuple[Take, ...], schema: pa.Schema, key: str | None
) -> tuple[str, ...]:
    columns = [take.column for take in takes]
    if not columns:
        raise BadOption(
            f"{policy}: name the columns to merge, as in {policy}(sum(amount), last(state))"
        )
    for take in takes:
        take.check(schema, key)
        if columns.count(take.column) > 1:
            raise BadOption(f"{policy}: column {take.column!r} is named twice; name it once")
    return tuple(columns)


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise BadOption(f"order={order!r}{nearest(str(order), ORDERS)}; use {' or '.join(ORDERS)}")


def merged(
    inputs: PolicyInput, takes: Sequence[Take], into_queued: Numbers, groups: Numbers
) -> PolicyResult:
    """
    Return the result when the messages of each group merge into its first one.

    *groups* has the group of each new message, numbered from 0. *into_queued* has the queued
    message that is the first of each group, or -1 if the first is the group's first new message.
    """
    count = len(into_queued)
    first_new = first_of(groups, count)
    kept = np.zeros(len(groups), np.bool_)
    kept[first_new[into_queued < 0]] = True
    # Only groups in which a message takes values are numbered and folded.
    takes_over = np.bincount(groups[~kept], minlength=count) > 0
    number = np.cumsum(takes_over) - 1
    into = into_queued[takes_over]
    into_new = first_new[takes_over]
    rest = np.flatnonzero(~kept)
    order = np.concatenate([np.arange(len(into)), number[groups[rest]]])
    queued, new = np.flatnonzero(into >= 0), np.flatnonzero(into < 0)
    values = {}
    for take in takes:
        firsts = _interleaved(
            inputs.queued.column(take.column).take(pa.array(into[queued])),
            inputs.new.column(take.column).take(pa.array(into_new[new])),
            np.argsort(np.concatenate([queued, new])),
        )
        others = inputs.new.column(take.column).take(pa.array(rest))
        column = pa.chunked_array([*firsts.chunks, *others.chunks], firsts.type)
        values[take.column] = take.fold(column, order, len(into))
    return PolicyResult(
        kept=kept,
        overwritten=_overwritten(into[queued], values, queued),
        overwritten_new=_overwritten(into_new[new], values, new),
    )


def _interleaved(one: pa.ChunkedArray, other: pa.ChunkedArray, order: Numbers) -> pa.ChunkedArray:
    both = pa.chunked_array([*one.chunks, *other.chunks], one.type)
    return both.take(pa.array(order))


def _overwritten(rows: Numbers, values: dict[str, pa.Array], groups: Numbers) -> Overwritten:
    return Overwritten(
        rows=rows, values={name: column.take(pa.array(groups)) for name, column in values.items()}
    )


def cancel(
    inputs: PolicyInput, openings: Numbers, opens: Flags, closes: Flags, order: str
) -> PolicyResult:
    """
    Let new messages close openings of their key, in the given *order*; both are cancelled.

    *openings* are the queued openings, the oldest first. Each new message *opens*, *closes*, or
    does neither. A closing without an opening does nothing.
    """
    queued, new, keys = inputs.queued_keys[openings], inputs.new_keys, inputs.keys
    events = np.flatnonzero(opens | closes)
    events = events[np.argsort(new[events], kind="stable")]
    step = np.where(closes[events], -1, 1)
    key = new[events]
    depth, matched = _depths(key, step, np.bincount(queued, minlength=keys)[key])
    closed = np.zeros(len(new), np.bool_)
    closed[events[matched]] = True
    opened = np.zeros(len(new), np.bool_)
    if order == OLDEST:
        gone = np.bincount(key[matched], minlength=keys)
        all_keys = np.concatenate([queued, new[opens]])
        taken = ranks(all_keys) < gone[all_keys]
        opened[np.flatnonzero(opens)] = taken[len(queued) :]
        return PolicyResult(kept=~(opened | closed), deleted=openings[taken[: len(queued)]])
    # An opening raises the depth to its own level; the next closing at this level closes it.
    standing = (step > 0) | matched
    level = np.concatenate([ranks(queued) + 1, (depth + (step < 0))[standing]])
    of_key = np.concatenate([queued, key[standing]])
    is_close = np.concatenate([np.zeros(len(queued), np.bool_), (step < 0)[standing]])
    by_level = np.lexsort((level, of_key))
    same = (np.diff(of_key[by_level]) == 0) & (np.diff(level[by_level]) == 0)
    taken = np.zeros(len(level), np.bool_)
    taken[by_level[:-1]] = same & is_close[by_level][1:] & ~is_close[by_level][:-1]
    opened[events[standing][taken[len(queued) :]]] = True
    return PolicyResult(kept=~(opened | closed), deleted=openings[taken[: len(queued)]])


def _depths(key: Numbers, step: Numbers, begin: Numbers) -> tuple[Numbers, Flags]:
    """Return how many openings are open after each event, and which events closed one."""
    if not len(key):
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    first = np.diff(key, prepend=-1) != 0
    total = np.cumsum(step)
    offset = np.where(first, total - step, 0)
    offset = offset[np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))]
    free = begin + total - offset
    # The minimum of each key so far: each key is shifted below all earlier ones.
    group = np.cumsum(first)
    far = int(free.max() - free.min()) + 1
    least = np.minimum(np.minimum.accumulate(free - group * far) + group * far, 0)
    before = np.where(first, 0, np.concatenate([[0], least[:-1]]))
    matched = (step < 0) & (least == before)
    return free - least, matched
