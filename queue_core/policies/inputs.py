"""The input of a policy and its result, as plain columns: no slices, no catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.values.rows import Numbers

Flags: TypeAlias = npt.NDArray[np.bool_]

_NONE: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """New messages in order of loading, and the queued ones of their keys in order of places."""

    #: The columns that the policy reads, of the new and of the queued messages.
    new: pa.Table
    queued: pa.Table
    #: The number of each message's key, from 0; equal keys have equal numbers.
    new_keys: Numbers
    queued_keys: Numbers
    #: Which of the queued messages are in flight.
    retrieved: Flags
    #: The shard of each message. All messages of a key are in one shard.
    new_shards: Numbers
    queued_shards: Numbers
    #: How many waiting messages of the shard come after each queued one.
    waiting_after: Numbers

    @property
    def keys(self) -> int:
        """The number of different keys."""
        return int(self.new_keys.max(initial=-1)) + 1

    @property
    def waiting(self) -> Numbers:
        """The queued messages that wait."""
        return np.flatnonzero(~self.retrieved)


@dataclass(frozen=True, kw_only=True)
class Overwritten:
    """Messages that get other values."""

    #: Which messages.
    rows: Numbers = field(default_factory=lambda: _NONE)
    #: Their new values by column, in the order of the rows.
    values: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def applied_to(self, table: pa.Table) -> pa.Table:
        """Return a table in which these rows have their new values."""
        source = np.arange(table.num_rows)
        source[self.rows] = table.num_rows + np.arange(len(self))
        for name, values in self.values.items():
            column = table.column(name)
            old_and_new = pa.chunked_array([*column.chunks, values], column.type)
            index = table.schema.get_field_index(name)
            taken = old_and_new.take(pa.array(source))
            table = table.set_column(index, table.schema.field(index), taken)
        return table


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """The decisions of a policy about the messages of its input."""

    #: Which of the new messages are queued; the others are left out.
    kept: Flags
    #: The queued messages that are deleted.
    deleted: Numbers = field(default_factory=lambda: _NONE)
    #: Other queued messages on which the decisions depend; if one changes, the result is void.
    consulted: Numbers = field(default_factory=lambda: _NONE)
    #: Queued messages and kept new messages that get other values.
    overwritten: Overwritten = field(default_factory=Overwritten)
    overwritten_new: Overwritten = field(default_factory=Overwritten)

    @property
    def depends_on(self) -> Numbers:
        """The queued messages that must be unchanged for the result to hold."""
        return np.unique(np.concatenate([self.deleted, self.consulted, self.overwritten.rows]))


@dataclass(frozen=True, kw_only=True)
class BoundPolicy:
    """A policy that is checked against the columns of one queue, and ready to evaluate."""

    #: The columns that the policy reads, besides the key.
    columns: tuple[str, ...]
    evaluate: Callable[[PolicyInput], PolicyResult]
    #: Whether the policy asks messages in flight too.
    asks_retrieved: bool = False
    #: Whether the policy asks only the last waiting message of each shard.
    asks_last_only: bool = False
