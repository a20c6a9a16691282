"""The outcomes of a run of a handler, and assertions about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.values.outcomes import DELETE, RELOAD, SIDELINE

_PAST = {DELETE: "deleted", SIDELINE: "sidelined", RELOAD: "reloaded"}


@dataclass(frozen=True, slots=True, eq=False)
class Handled:
    """The outcomes of the messages that `handle` has given to a handler."""

    #: The queue's name.
    queue: str
    #: The messages in the order in which they were fired: the columns of the queue, the metadata
    #: columns, and ``outcome``, ``kind``, ``reason``, ``not_before``, ``delay``, ``dead`` and
    #: ``trace``, in place of columns of the queue with these names.
    messages: pa.Table
    #: The messages that were loaded into queues of the store meanwhile, by the queue's name. A
    #: queue without any is left out.
    loaded: Mapping[str, pa.Table]

    @property
    def deleted(self) -> pa.Table:
        """The messages that were deleted; those with a kind were ignored failures."""
        return self._with_outcome(DELETE)

    @property
    def sidelined(self) -> pa.Table:
        """The messages that were sidelined, with ``kind`` and ``reason``."""
        return self._with_outcome(SIDELINE)

    @property
    def reloaded(self) -> pa.Table:
        """The messages that were put off, with ``delay``."""
        return self._with_outcome(RELOAD)

    def assert_deleted(self, count: int | None = None) -> None:
        """
        Check how many messages were deleted.

        Args:
            count: The number of messages. By default, all that were handled, at least one.

        Raises:
            AssertionError: It was another number; the message describes all outcomes.
        """
        self._assert(DELETE, count, None, None)

    def assert_sidelined(
        self, count: int | None = None, *, kind: str | None = None, reason: str | None = None
    ) -> None:
        """
        Check how many messages were sidelined.

        Args:
            count: The number of messages. By default, all that were handled, at least one.
            kind: Count only messages with this kind, such as ``exception``, ``rejected``,
                ``timeout``, ``undecided`` or ``unreadable``. By default, all.
            reason: Count only messages whose reason contains this text. By default, all.

        Raises:
            AssertionError: It was another number; the message describes all outcomes.
        """
        self._assert(SIDELINE, count, kind, reason)

    def assert_reloaded(self, count: int | None = None) -> None:
        """
        Check how many messages were put off, with `Later` or the outcome ``reload``.

        Args:
            count: The number of messages. By default, all that were handled, at least one.

        Raises:
            AssertionError: It was another number; the message describes all outcomes.
        """
        self._assert(RELOAD, count, None, None)

    def assert_loaded(self, queue: str, rows: int | Sequence[Mapping[str, Any]]) -> None:
        """
        Check which messages were loaded into a queue while the handler ran.

        Args:
            queue: The queue's name.
            rows: The number of messages; or the messages in any order, as dicts of the columns to
                compare.

        Raises:
            AssertionError: There were others; the message lists them.
        """
        table = self.loaded.get(queue)
        if isinstance(rows, int):
            found = 0 if table is None else table.num_rows
            if found != rows:
                raise AssertionError(f"{found} messages were loaded into {queue!r}, not {rows}")
            return
        columns = list(dict.fromkeys(name for row in rows for name in row))
        actual = []
        if table is not None:
            missing = [name for name in columns if name not in table.column_names]
            if missing:
                raise AssertionError(f"queue {queue!r} has no column {missing[0]!r}")
            actual = table.select(columns or table.column_names).to_pylist()
        left = list(actual)
        for row in rows:
            if row in left:
                left.remove(dict(row))
        if left or len(actual) != len(rows):
            raise AssertionError(f"loaded into {queue!r}: {actual}, not {[*map(dict, rows)]}")

    def __str__(self) -> str:
        counts = Counter(self.messages.column("outcome").to_pylist())
        texts = [f"{counts[outcome]} {past}" for outcome, past in _PAST.items() if counts[outcome]]
        lines = [f"queue {self.queue!r}: {', '.join(texts) or 'no message was handled'}"]
        failed = self.messages.filter(pc.is_valid(self.messages.column("kind")))
        pairs = [failed.column(name).to_pylist() for name in ("outcome", "kind", "reason")]
        for (outcome, kind, reason), number in Counter(zip(*pairs, strict=True)).items():
            lines.append(f"  {number} {_PAST[outcome]} as {kind}: {reason or 'no reason'}")
        return "\n".join(lines)

    def _with_outcome(self, outcome: str) -> pa.Table:
        return self.messages.filter(pc.equal(self.messages.column("outcome"), outcome))

    def _assert(
        self, outcome: str, count: int | None, kind: str | None, reason: str | None
    ) -> None:
        found = self._with_outcome(outcome)
        if kind is not None:
            found = found.filter(pc.equal(found.column("kind"), kind))
        if reason is not None:
            found = found.filter(pc.match_substring(found.column("reason"), reason))
        expected = self.messages.num_rows if count is None else count
        if found.num_rows == expected and (expected or count is not None):
            return
        which = "".join(
            f" with {name} {value!r}"
            for name, value in (("kind", kind), ("reason", reason))
            if value is not None
        )
        wanted = "all of them, at least one" if count is None else str(count)
        raise AssertionError(
            f"{found.num_rows} messages were {_PAST[outcome]}{which}, not {wanted}\n{self}"
        )
