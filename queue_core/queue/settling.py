"""`Settling`: the outcomes of fired messages, as methods of each face that fires them."""

from __future__ import annotations

from queue_core.errors import BadOutcome
from queue_core.support.interruption import shielded
from queue_core.values.failure_kinds import REJECTED
from queue_core.values.model import THIS_PROCESS, Consumer, Holder
from queue_core.values.outcomes import Settlement
from queue_core.values.retry import Retry, of_kinds
from queue_core.waiting.firing import Firing, Messages, holder_of, ids_of


@shielded
class Settling:
    """The outcomes of fired messages, which `_settle` gives them."""

    def _settle(self, settlement: Settlement, holder: Holder, policy: Retry | None) -> int:
        raise NotImplementedError

    def _give(self, settlement: Settlement, holder: Holder, policy: Retry | None = None) -> int:
        if not isinstance(settlement, Settlement):
            raise BadOutcome(
                f"expected a Settlement, got {type(settlement).__name__}; build one with "
                "Settlement.of from a table with the columns _message_id and outcome"
            )
        settlement.check()
        return self._settle(settlement, holder, policy)

    def delete(self, messages: Messages, *, consumer: Consumer | str | None = None) -> int:
        """
        Remove fired messages for good, because they are done.

        Messages that are no longer in flight are left alone; within your transaction
        (`Queue.within`), they are refused.

        Args:
            messages: A `Firing`, or message ids (int64) as a pyarrow or numpy array or an iterable
                of integers. With a firing, only messages that it still holds are removed.
            consumer: Remove only messages that this consumer holds; a value or a name. By default,
                with ids, those that a consumer of this process holds.

        Returns:
            How many of the messages were still held.

        Raises:
            BadOutcome: An id does not belong to this queue; nothing was changed.
            BadOption: No consumer of that name has ever fired, or the connection of
                `Queue.within` is not suitable.
            Conflict: Within your transaction: a message is not held any more, or another
                transaction was in the way. Roll yours back.
        """
        return self._give(Settlement(deleted=ids_of(messages)), holder_of(messages, consumer))

    def sideline(
        self,
        messages: Messages,
        reason: str | None = None,
        *,
        kind: str = REJECTED,
        consumer: Consumer | str | None = None,
    ) -> int:
        """
        Move fired messages to the sideline, because they failed.

        Messages that are no longer in flight are left alone, or refused, as by `delete`. Each
        failure raises the message's ``_attempt`` by one and adds a row to `Queue.failures`. The
        setting ``retry`` says when a message returns to main; after the last attempt it stays.

        Args:
            messages: A `Firing`, or message ids (int64), as in `delete`.
            reason: Any text; the first 2000 characters are kept.
            kind: One word of lower-case letters, digits and ``_``, up to 32 characters.
            consumer: Sideline only messages that this consumer holds, as in `delete`.

        Returns:
            How many of the messages were still held.

        Raises:
            BadOutcome: *kind* or *reason* is malformed, or an id does not belong to this queue;
                nothing was changed.
            BadOption: As in `delete`.
            Conflict: As in `delete`.
        """
        settlement = Settlement.sideline(ids_of(messages), reason, kind)
        return self._give(settlement, holder_of(messages, consumer))

    def reload(self, messages: Messages, *, consumer: Consumer | str | None = None) -> int:
        """
        Put fired messages back to their old positions, without counting a failure.

        Args:
            messages: A `Firing`, or message ids (int64), as in `delete`.
            consumer: Reload only messages that this consumer holds, as in `delete`.

        Returns:
            How many of the messages were still held.

        Raises:
            BadOutcome: An id does not belong to this queue; nothing was changed.
            BadOption: As in `delete`.
            Conflict: As in `delete`.
        """
        return self._give(Settlement(reloaded=ids_of(messages)), holder_of(messages, consumer))

    def settle(
        self,
        settlement: Settlement,
        consumer: Firing | Consumer | str | None = None,
        *,
        retry: Retry | str | None = None,
    ) -> int:
        """
        Give fired messages their outcomes, all in one transaction.

        Args:
            settlement: The outcomes. `Settlement.of` makes it from a table with ``_message_id``
                (int64), ``outcome`` (string: ``delete``, ``sideline`` or ``reload``) and,
                optionally, ``kind``, ``reason``, ``not_before``, ``delay`` and ``dead``.
            consumer: Settle only messages that this firing or this consumer, a value or a name,
                still holds. By default, those that a consumer of this process holds.
            retry: The policy for these messages, or its text. By default, the setting ``retry``.

        Returns:
            How many of the messages were still held.

        Raises:
            BadOutcome: An id does not belong to this queue; nothing was changed.
            BadOption: As in `delete`, or *retry* is not a policy or names exception classes.
            Conflict: As in `delete`.
        """
        given = consumer.ticket if isinstance(consumer, Firing) else consumer
        return self._give(settlement, given or THIS_PROCESS, of_kinds(retry))
