"""The ledger: what clients were promised and what they got, and whether the two agree.

It knows nothing of the product. Clients write down what they did, each entry with its time; faults
are written down too. `Ledger.faults_of` then names each message that was lost, unexpected, doubled
or handed to two at once, unless an entry explains it for certain.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class _Message:
    """The life of one message, by its number."""

    began: int
    #: When its load returned; None if it did not.
    acknowledged: int | None = None
    #: Entries at which it was published or finished; True: for certain. The third is the last one
    #: before that began: a deletion may return late, and a batch was read before it is published.
    published: list[tuple[int, bool, int]] = field(default_factory=list)
    finished: list[tuple[int, bool, int]] = field(default_factory=list)


@dataclass(frozen=True)
class _Restore:
    """A catalog was put back: it has forgotten everything between the two entries."""

    store: str
    backed_up: int
    at: int

    def covers(self, entry: int, begun: int | None = None) -> bool:
        return self.backed_up < entry and (entry if begun is None else begun) <= self.at


@dataclass(frozen=True)
class _Held:
    holder: str
    at: int
    #: The last entry before the firing began.
    begun: int
    since: float


class Ledger:
    """One history. *source* and *target* are the stores that a query copies from and to."""

    def __init__(self, *, source: str = "near", target: str = "near", patience: float = 0) -> None:
        self._source, self._target = source, target
        #: Seconds after which a message that is held may come to others.
        self._patience = patience
        self._entries = 0
        self._messages: dict[int, _Message] = {}
        self._versions: dict[object, list[int]] = defaultdict(list)
        self._restores: list[_Restore] = []
        self._held: dict[int, _Held] = {}
        self._excused: dict[int, str] = {}
        self.violations: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)

    @property
    def entry(self) -> int:
        """The number of the last entry."""
        return self._entries

    @property
    def has_published(self) -> bool:
        """Whether a batch was published."""
        return any(certain for m in self._messages.values() for _, certain, _ in m.published)

    # What clients write down

    def loads(self, numbers: list[int], key: object = None) -> None:
        """A producer begins to load messages; with *key*, a later load may replace an earlier."""
        at = self._next()
        for number in numbers:
            self._messages[number] = _Message(at)
            if key is not None:
                self._versions[key].append(number)
        self.counts["attempted"] += len(numbers)

    def loaded(self, numbers: list[int]) -> None:
        """The load has returned."""
        at = self._next()
        for number in numbers:
            self._messages[number].acknowledged = at
        self.counts["acknowledged"] += len(numbers)

    def publishing(self, numbers: list[int], begun: int | None = None) -> None:
        """
        A query begins to publish a batch.

        *begun* is the last entry before it has read the batch. In a store that is source and
        target, a batch is refused that was read before a restore.
        """
        at = self._next()
        if begun is None or self._source == self._target:
            begun = at
        for number in numbers:
            self._known(number, "published").published.append((at, False, begun))

    def published(self, numbers: list[int]) -> None:
        """The commit of the batch has returned."""
        at = self._next()
        for number in numbers:
            self._known(number, "published").published.append((at, True, at))

    def handed(
        self, holder: str, numbers: list[int], since: float, now: float, begun: int | None = None
    ) -> None:
        """
        Messages are handed to somebody, who holds them until they are finished or freed.

        *since*: when they were fired, or some time before. *begun* is the last entry before the
        firing began, by default this one: a firing may return after a restore that forgets it.
        """
        at = self._next()
        begun = at if begun is None else begun
        self.counts["delivered"] += len(numbers)
        for number in numbers:
            message = self._known(number, "delivered")
            held = self._held.get(number)
            if held is not None and held.holder != holder:
                explained = self._gone_back(held.at, at, held.begun)
                explained = explained or now - held.since >= self._patience
                # Each of two copies may have a holder.
                if not explained and not self._may_be_double(number, message):
                    self._violation(f"{number} is handed to {holder} while {held.holder} holds it")
            for finished, certain, deletion in message.finished:
                explained = self._gone_back(finished, at, deletion)
                explained = explained or self._may_be_double(number, message)
                if certain and not explained:
                    self._violation(f"{number} is handed to {holder} after it was finished")
            if message.finished:
                self.counts["doubled, explained"] += 1
            self._held[number] = _Held(holder, at, begun, since)

    def finished(self, numbers: list[int], *, certain: bool, begun: int | None = None) -> None:
        """
        Messages were deleted; not *certain*: perhaps, or perhaps others held them by then.

        *begun* is the last entry before the deletion began, by default this one.
        """
        at = self._next()
        begun = at if begun is None else begun
        for number in numbers:
            self._known(number, "finished").finished.append((at, certain, begun))
            self._held.pop(number, None)

    def freed(self, numbers: list[int]) -> None:
        """Messages were given back, or may have been."""
        self._next()
        for number in numbers:
            self._held.pop(number, None)

    def restored(self, store: str, backed_up: int) -> None:
        """A catalog is as it was at an entry."""
        self._restores.append(_Restore(store, backed_up, self._next()))
        self.counts["restores"] += 1

    def excuse(self, numbers: list[int], why: str) -> None:
        """A fault explains for certain that these messages may come twice."""
        self._next()
        for number in numbers:
            self._excused[number] = why

    # What must hold

    def faults_of(self, source: list[int], target: list[int]) -> list[str]:
        """
        Return what is wrong at the end, when the source should be empty.

        *source* and *target* are the messages that are still in them, each as often as it is there.
        """
        wrong = list(self.violations)
        there: dict[int, int] = defaultdict(int)
        for number in target:
            there[number] += 1
        for number in {*source, *target} - self._messages.keys():
            wrong.append(f"{number} is unexpected: nobody loaded it")
        done = {number for number, message in self._messages.items() if message.finished}
        arrived = {*source, *target, *done}
        for number, message in sorted(self._messages.items()):
            is_gone = message.acknowledged is not None and number not in arrived
            excused = self._replaced(number, arrived) or self._may_be_lost(message)
            if is_gone and not excused:
                wrong.append(f"{number} is lost")
            if self._copies(message, there[number]) > 1 and not self._may_be_double(
                number, message
            ):
                wrong.append(f"{number} is doubled: {there[number]} in the target, {message}")
        if len(source) != len(set(source)):
            wrong.append("the source holds a message twice")
        return wrong

    def _copies(self, message: _Message, present: int) -> int:
        """Return how many copies arrived for certain: those that are there, and one finished."""
        done = [at for at, certain, _ in message.finished if certain]
        return present + bool(done)

    def _may_be_lost(self, message: _Message) -> bool:
        acknowledged = message.acknowledged or 0
        entries = [at for at, _, _ in message.published]
        for restore in self._restores:
            # Unless its load had returned when the backup was made.
            of_load = restore.store == self._source and message.began <= restore.at
            if of_load and acknowledged > restore.backed_up:
                return True
            # So are copies that only the target had.
            of_copy = bool(entries) and restore.store == self._target != self._source
            if of_copy and min(entries) <= restore.at and max(entries) > restore.backed_up:
                return True
        return False

    def _replaced(self, number: int, arrived: set[int]) -> bool:
        """Return whether a later version of a message was loaded for certain."""
        for versions in self._versions.values():
            if number in versions:
                later = versions[versions.index(number) + 1 :]
                return any(
                    n in arrived or self._messages[n].acknowledged is not None for n in later
                )
        return False

    def _may_be_double(self, number: int, message: _Message) -> bool:
        if number in self._excused:
            return True
        times = [(at, begun) for at, _, begun in (*message.published, *message.finished)]
        return any(r.covers(*time) for r in self._restores for time in times)

    def _gone_back(self, before: int, now: int, begun: int | None = None) -> bool:
        """Return whether a restore forgot an entry that others rely on."""
        return any(r.covers(before, begun) and r.at <= now for r in self._restores)

    def _known(self, number: int, what: str) -> _Message:
        if number not in self._messages:
            self._violation(f"{number} is {what}, and nobody loaded it")
            self._messages[number] = _Message(self._entries)
        return self._messages[number]

    def _violation(self, text: str) -> None:
        self.violations.append(text)

    def _next(self) -> int:
        self._entries += 1
        return self._entries
