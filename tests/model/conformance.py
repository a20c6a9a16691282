"""Check a journal of transactions against the specification, message by message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from queue_core.values.model import Magazine, State
from queue_core.values.rows import Rows
from tests.model.journal import Change, Transaction
from tests.model.spec import DAMAGED, FIRED, LOADED, MAIN, SIDELINE, Slice, transition

_STATES = {State.LOADED: LOADED, State.FIRED: FIRED, State.DAMAGED: DAMAGED}
_MAGAZINES = {Magazine.MAIN: MAIN, Magazine.SIDELINE: SIDELINE}

#: A message by its queue, segment and row; a compacted one gets others.
Message = tuple[int, int, int]


class NotAllowed(AssertionError):
    """A transaction that the specification does not have."""


@dataclass
class Checker:
    """The state of the specification after the transactions so far."""

    places: dict[Message, Slice] = field(default_factory=dict)
    #: The queues that read the logs of others.
    subscriptions: set[int] = field(default_factory=set)
    #: The segments that the compaction of a log has written, whose maps its readers copy.
    merged: set[int] = field(default_factory=set)
    #: Of these, those with a selector, which pass messages by.
    selective: set[int] = field(default_factory=set)
    #: The numbers of tickets that consumers have reserved, and not used.
    unused: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: How often each transition was seen.
    seen: Counter[str] = field(default_factory=Counter)

    def check(self, transactions: Iterable[Transaction]) -> Counter[str]:
        """Take every transaction; return how often each transition was seen."""
        for transaction in transactions:
            self._take(transaction)
        return self.seen

    def _take(self, transaction: Transaction) -> None:
        fired: set[tuple[int, int]] = set()
        compacts = any(list(map(self._maps, transaction.changes)))
        touched: dict[Message, Slice | None] = {}
        slices: dict[Message, list[Slice]] = {}
        advanced, entered = Counter[int](), Counter[int]()
        # Queues that are made, go, or seek: their messages become others.
        changed = {
            row["id"]
            for change in transaction.changes
            for row in (change.before, change.after)
            if change.table == "queues" and row is not None
        }
        for change in transaction.changes:
            if change.table == "consumers":
                self._consumer(change)
            elif change.table == "shard_locks":
                self._cursor(change, advanced, changed)
            elif change.table == "publications":
                self._publication(change)
            elif change.table == "slices":
                self._slice(change, touched, slices)
        for message, before in touched.items():
            left = slices.get(message, [])
            if len(left) > 1:
                raise NotAllowed(f"transaction {transaction.number}: {message} is in {left}")
            after = left[0] if left else None
            name = transition(before, after)
            if compacts and {before and before.state, after and after.state} <= {None, LOADED}:
                # Its messages are in another segment, and those of both segments waited.
                name = "compact"
            if message[0] in changed and (after is None or after.state != FIRED):
                name = "copy"
            if name is None:
                raise NotAllowed(f"transaction {transaction.number}: {before} becomes {after}")
            if before is None and name not in ("compact", "copy"):
                if name == "take" and message[0] not in self.subscriptions:
                    raise NotAllowed(f"transaction {transaction.number}: {after} was not loaded")
                entered[message[0]] += 1
            if name in ("fire", "take") and after is not None:
                self._check_ticket(transaction, after, fired)
            self.seen[name] += 1
            if after is None:
                self.places.pop(message, None)
            else:
                self.places[message] = after

        for queue_id in self.subscriptions & {*advanced, *entered}:
            passed = advanced[queue_id] - entered[queue_id]
            if passed and (passed < 0 or queue_id not in self.selective):
                raise NotAllowed(
                    f"transaction {transaction.number}: {entered[queue_id]} messages came into "
                    f"subscription {queue_id}, and its cursors advanced by {advanced[queue_id]}"
                )

    def _maps(self, change: Change) -> bool:
        """Return whether a change is of a compaction of slices."""
        row = change.after if change.table == "id_map" else None
        if row is not None and row["queue_id"] < 0:
            self.merged.add(row["segment_id"])
        return row is not None and row["segment_id"] not in self.merged

    def _cursor(self, change: Change, advanced: Counter[int], changed: set[int]) -> None:
        row, before = change.after, change.before
        if row is None or not row["log_of"]:
            return
        self.subscriptions.add(row["queue_id"])
        if row["queue_id"] in changed:
            return
        if before is not None and row["cursor"] != before["cursor"]:
            if row["cursor"] < before["cursor"]:
                raise NotAllowed(f"a cursor goes back: {change}")
            advanced[row["queue_id"]] += row["cursor"] - before["cursor"]

    def _slice(
        self,
        change: Change,
        touched: dict[Message, Slice | None],
        slices: dict[Message, list[Slice]],
    ) -> None:
        for row, joins in ((change.before, False), (change.after, True)):
            for message, place in _messages(row):
                if message not in touched:
                    before = self.places.get(message)
                    touched[message] = before
                    slices[message] = [before] if before is not None else []
                if joins:
                    slices[message].append(place)
                elif place in slices[message]:
                    slices[message].remove(place)
                else:
                    raise NotAllowed(f"{message} leaves {place}, and is in {slices[message]}")

    def _consumer(self, change: Change) -> None:
        if change.after is None:
            return
        before = change.before or {"epoch": 0, "last_ticket": 0, "acknowledged": 0}
        after = change.after
        for counter in ("epoch", "last_ticket", "acknowledged"):
            if after[counter] < before[counter]:
                raise NotAllowed(f"{counter} of consumer {after['id']} goes back: {change}")
        new = range(before["last_ticket"] + 1, after["last_ticket"] + 1)
        self.unused[after["id"]].update(new)

    def _publication(self, change: Change) -> None:
        if change.before and change.after:
            goes_back = change.after["batch_id"] < change.before["batch_id"]
            if goes_back:
                raise NotAllowed(f"a batch is recorded after a later one: {change}")

    def _check_ticket(
        self, transaction: Transaction, after: Slice, fired: set[tuple[int, int]]
    ) -> None:
        ticket = int(after.consumer), after.ticket
        unused = self.unused[ticket[0]]
        if after.ticket not in unused and ticket not in fired:
            raise NotAllowed(
                f"transaction {transaction.number}: {after} is fired, and its consumer has no such "
                f"ticket that was not used, but {sorted(unused)}"
            )
        unused.discard(after.ticket)
        fired.add(ticket)


def _messages(row: dict[str, Any] | None) -> Iterable[tuple[Message, Slice]]:
    if row is None:
        return
    bitmap = bytes.fromhex(row["bitmap"]) if row["bitmap"] else None
    rows = Rows.from_bytes(row["row_start"], row["row_stop"], bitmap)
    for number in rows.numbers().tolist():
        message = (row["queue_id"], row["segment_id"], number)
        yield (
            message,
            Slice(
                message=row["segment_id"] << 20 | number,
                magazine=_MAGAZINES[Magazine(row["magazine"])],
                state=_STATES[State(row["state"])],
                consumer="" if row["consumer_id"] is None else str(row["consumer_id"]),
                ticket=row["ticket"] or 0,
            ),
        )
