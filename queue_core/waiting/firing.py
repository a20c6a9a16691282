"""`Firing`: the messages that one firing took, to be settled."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from queue_core.selection.fired import Fired
from queue_core.values.ids import IdSet
from queue_core.values.model import THIS_PROCESS, Consumer, Holder, ReadPlan

#: Messages to settle: a firing, or message ids as a pyarrow or numpy array or a list.
Messages = Any
_NOTHING = Fired()


class Firing:
    """The messages of one firing, ``firing.messages``, and the ticket that holds them."""

    def __init__(self, messages: pa.Table, fired: Fired = _NOTHING) -> None:
        #: None when there was nothing to fire.
        self.ticket = fired.ticket
        #: The queue's columns, then those of `queue_core.values.schema.METADATA`.
        self.messages = messages
        #: Seconds after which to fire again, because the queue's limits have refused messages, or
        #: another transaction, such as a caller's, has kept them; None if neither is the case.
        self.opens_in = fired.opens_in if fired.ticket is None else None
        #: Whether messages wait until a pool or a target has settled what it holds, because one of
        #: them may have ended its process.
        self.stalled = fired.stalled
        #: Whether these are suspects; otherwise, they wait for suspects that it holds.
        self.suspects = fired.suspects
        #: Whether *max_bytes* has left messages that could have been fired.
        self.full = fired.full
        #: Whether it may have left messages that could be fired now.
        self.more = fired.more
        #: The messages as they were read, and their ids.
        self._read: tuple[pa.Table, IdSet] | None = None

    @property
    def ids(self) -> pa.ChunkedArray:
        """The message ids (int64), in the order of `messages`."""
        return self.messages.column("_message_id")

    def __len__(self) -> int:
        return int(self.messages.num_rows)

    def __repr__(self) -> str:
        if self.ticket is None:
            return "<Firing of nothing>"
        return (
            f"<Firing of {len(self)} messages, ticket {self.ticket.number} of "
            f"{self.ticket.consumer.name}>"
        )


def of_plan(fired: Fired, messages: pa.Table, plan: ReadPlan) -> Firing:
    """Return a firing whose messages a plan has read."""
    firing = Firing(messages, fired)
    if not any(task.segment.compacted for task in plan.tasks):
        # A plan has few ranges of ids, and the messages can be many.
        firing._read = messages, IdSet.of_scan(plan.tasks)
    return firing


def ids_of(messages: Messages) -> IdSet:
    """Return the ids of messages; raises `BadOutcome`."""
    if not isinstance(messages, Firing):
        return IdSet.of(messages)
    if messages._read is not None and messages._read[0] is messages.messages:
        return messages._read[1]
    return IdSet.of(messages.ids)


def holder_of(messages: Messages, consumer: Consumer | str | None) -> Holder:
    """Return who must hold messages that are settled: *consumer*, their firing, or this process."""
    if consumer is not None:
        return consumer
    if isinstance(messages, Firing) and messages.ticket is not None:
        return messages.ticket
    return THIS_PROCESS
