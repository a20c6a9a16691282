"""The readers of a log in a history: subscriptions, replays, clones, and a query that reads it.

What each of them is to get is known from the log itself. It is read from the tables, and not by the
product, before anything of it is trimmed. When a reader seeks, or is attached behind its place, it
has another range: its messages may come again. So a reader has one stint after another, each of
which is a queue of its own for the referee.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from queue_core import Store, errors
from queue_core.segments.format import decode, unpack_chunks
from queue_core.values.rows import Rows
from queue_core.values.schema import COMPACTED
from tests.factories import ORDERS, make_queue
from tests.model import journal
from tests.model.conformance import Checker
from tests.simulation.spark import Checkpoint, LoadSink, Query
from tests.simulation.world import Client, current

if TYPE_CHECKING:
    from tests.simulation.scenario import _History

#: How long and how large a log may be; with the last one, a query reads it to the end.
LOGS = ("1 second", "1 minute", "20 minutes", "2 KB", "1 hour, 4 KB", "1000 days")
#: The most queues that a history adds to its first readers.
_MOST = 6

_CURSORS = """
SELECT shard, log_of, cursor, cursor_end FROM shard_locks
WHERE queue_id = (SELECT id FROM queues WHERE name = ?) AND magazine = 0
"""
_ENDS = """
SELECT shard, logged, (SELECT start FROM logs AS l WHERE l.queue_id = s.queue_id AND
    l.shard = s.shard) FROM shards AS s
WHERE queue_id = (SELECT id FROM queues WHERE name = 'a') AND magazine = 0
"""
_CONTENT = """row_start, row_stop, bitmap, data, file, chunks,
    EXISTS (SELECT 1 FROM id_map AS m WHERE m.segment_id = s.id)
"""
_ROWS = f"""
SELECT {_CONTENT}, l.first_offset FROM log_slices AS l JOIN segments AS s ON s.id = l.segment_id
WHERE l.queue_id = (SELECT id FROM queues WHERE name = 'a') AND l.shard = ?
    AND l.first_offset + l.count > ? ORDER BY l.first_offset
"""
_SLICES = f"""
SELECT {_CONTENT} FROM slices AS l JOIN segments AS s ON s.id = l.segment_id
WHERE l.queue_id = (SELECT id FROM queues WHERE name = ?) AND (l.ticket IS NULL OR ?)
"""

#: An offset of each shard.
_Places = dict[int, int]


@dataclass(frozen=True, kw_only=True)
class Stint:
    """A range of the log, and other messages, that a reader is to get once."""

    name: str
    begin: _Places
    #: Where it ends, of those shards in which it does.
    end: Mapping[int, int]
    also: frozenset[int]
    wants: Callable[[int], bool]

    def has(self, at: tuple[int, int], number: int) -> bool:
        """Return whether it is to get a message, which is at a place of the log."""
        shard, offset = at
        begin = self.begin.get(shard)
        within = begin is not None and begin <= offset < self.end.get(shard, offset + 1)
        return within and self.wants(number)


@dataclass
class State:
    """The readers at a moment, as a copy of the catalog has them."""

    stints: dict[str, Stint] = field(default_factory=dict)
    #: What each snapshot keeps, by its reader and its own name.
    kept: dict[tuple[str, str], Stint] = field(default_factory=dict)

    def copy(self) -> State:
        """Return the same, which stays as it is."""
        return State(dict(self.stints), dict(self.kept))


class Readers:
    """All who read the log of the queue ``a``, and what they are to get."""

    def __init__(self, history: _History) -> None:
        self._history, self._world = history, history.world
        self._chance = history.chance
        self._address = self._world.address("near")
        self.state = State()
        #: Each message of the log by its shard and offset, also if it was trimmed.
        self._log: dict[tuple[int, int], int] = {}
        #: All numbers that the log ever had, also those that a restore has undone.
        self._ever: set[int] = set()
        #: For each reader: since which era it has which stint.
        self._stints: dict[str, list[tuple[int, Stint | None]]] = {}
        self._selective: set[int] = set()
        self._names = 0
        self._checkpoint = Checkpoint.new(self._world.folder / "logger")
        self._world.looks = self._see

    @property
    def copies(self) -> bool:
        """Whether a query reads the log, which must never lose what it has not read."""
        shape = self._history.shape
        return shape.log == LOGS[-1] and not shape.restores

    @property
    def checked(self) -> bool:
        """Whether the journal of all transactions is compared with the specification."""
        return not self._history.shape.restores

    def begin(self, store: Store) -> None:
        """Create the first readers."""
        if self.checked:
            journal.install(store)
        store.subscribe("plain", to="a", start="earliest")
        store.subscribe("chosen", to="a", start="earliest", selector="number % 3 <> 0")
        store.subscribe("chain", to="chosen", start="earliest", selector="number % 2 = 0")
        drops = self._chance.random() < 0.3
        late = {"late": "30 minutes", "when_late": "drop" if drops else "detach"}
        store.subscribe("tardy", to="a", start="earliest", **late)
        for name, wants in (
            ("plain", _all),
            ("chosen", lambda number: number % 3 != 0),
            ("chain", lambda number: number % 3 != 0 and number % 2 == 0),
            ("tardy", _all),
        ):
            self._enter(store, name, wants)
        if self.copies:
            make_queue(store, "c", shards=2)

    # Clients

    def reads(self, client: Client) -> None:
        """Fire from one reader after another, and settle."""
        history, chance = self._history, self._chance
        store = client.store()
        while True:
            name = chance.choice(sorted(self.state.stints))
            way = chance.choice([{}, {}, {"selector": "number % 5 <> 1"}, {"order_by": "number"}])
            begun = history.now
            try:
                queue = store.queue(name)
                firing = queue.fire(chance.randrange(1, 6), **way)
            except (errors.NoSuchQueue, errors.QueueDeactivated):
                # It was dropped or detached.
                self._world.seam("reader idle", sleep=1.5)
                continue
            numbers = firing.messages.column("number").to_pylist()
            if not numbers:
                self._world.seam("reader idle", sleep=0.7)
                continue
            stint = self._stint_of(name, client.era)
            self._world.note(f"{stint} gets {numbers}")
            history.delivered(client.name, numbers, firing.ids.to_pylist(), begun, stint)
            self._world.seam("reader works", sleep=chance.choice([0.0, 0.2, 5.0]))
            outcome = chance.choice(["delete"] * 7 + ["reload", "sideline", "forget"])
            if outcome == "forget":
                continue
            about = {"queue": stint}
            settle = history.begin_settling(client.name, {outcome: numbers}, **about)
            try:
                held = getattr(queue, outcome)(firing)
            except errors.NoSuchQueue:
                continue
            history.write("settled", client.name, settle=settle, held=held)

    def logs(self, client: Client) -> None:
        """Copy the log to the queue ``c``, as a streaming query does."""
        Query(
            world=self._world,
            address=self._address,
            queue="a",
            checkpoint=self._checkpoint,
            sink=LoadSink(self._address, "logger", self._checkpoint.folder, "c"),
            ack="log",
            most=self._history.shape.most,
        ).run()

    # What a person does

    def act(self) -> None:
        """Do something with a reader, in one moment."""
        self.look()
        names = sorted(self.state.stints)
        acts = [self._snapshot, self._seek, self._seek, self._detach, self._attach]
        if len(names) < _MOST + 4:
            acts += [self._subscribe, self._replay, self._clone]
        acts.append(self._drop)
        act, name = self._chance.choice(acts), self._chance.choice(names)
        with Store(self._address, create=False) as store:
            self._world.note(f"{act.__name__[1:]} {name}")
            try:
                act(store, name)
                self._history.counts[act.__name__[1:]] += 1
            except errors.NoSuchQueue:
                # A late one was dropped.
                self._set(name, None)
            except errors.BadOption as error:
                self._world.note(f"refused: {error}")

    def _subscribe(self, store: Store, name: str) -> None:
        new, to = self._name("new"), self._chance.choice([name, "a"])
        starts = ["earliest", "latest", name, self._some_time()]
        start = self._chance.choice(starts)
        before = self._cursors(name)
        store.subscribe(new, to=to, start=start)
        self._enter(store, new, self._wants(to))
        begin = self.state.stints[new].begin
        if start == "earliest":
            assert begin == self._ends()[1]
        elif start == "latest":
            assert begin == self._ends()[0]
        elif start == name:
            first = self._ends()[1]
            assert begin == {at: max(row[1], first[at]) for at, row in before.items()}

    def _replay(self, store: Store, name: str) -> None:
        new = self._name("again")
        source = store.queue(self._chance.choice([name, "a"]))
        how = {"since": self._some_time()} if self._chance.random() < 0.3 else {}
        source.replay(new, **how)
        self._enter(store, new, self._wants(source.name))
        stint, (ends, starts) = self.state.stints[new], self._ends()
        assert stint.end == {at: end for at, end in ends.items() if end}
        assert how or stint.begin == {at: starts[at] for at in stint.begin}

    def _clone(self, store: Store, name: str) -> None:
        new = self._name("copy")
        source = store.queue(self._chance.choice([name, "a"]))
        waiting = self._slices(source.name, waiting=True)
        source.clone(new)
        self._enter(store, new, self._wants(source.name), waiting)
        assert self._slices(new) == waiting

    def _snapshot(self, store: Store, name: str) -> None:
        label = self._name("kept")
        stint = self._present(name)
        store.queue(name).admin.snapshot(label)
        self.state.kept[name, label] = stint

    def _seek(self, store: Store, name: str) -> None:
        kept = [label for reader, label in self.state.kept if reader == name]
        to = self._chance.choice(["earliest", "latest", *kept])
        queue = store.queue(name)
        queue.admin.pause()
        try:
            queue.admin.seek(to, force=True)
        finally:
            queue.admin.resume()
        wants = self.state.stints[name].wants
        if to in kept:
            old = self.state.kept[name, to]
            self._enter(store, name, old.wants, old.also)
            now = self.state.stints[name]
            assert (now.begin, now.end, self._slices(name)) == (old.begin, old.end, old.also)
        else:
            self._enter(store, name, wants)
            assert self.state.stints[name].begin == self._ends()[to == "earliest"]
            assert not self._slices(name)

    def _detach(self, store: Store, name: str) -> None:
        store.queue(name).admin.detach()
        if self.state.stints[name].end:
            # A replay or a clone ends with what it has taken in.
            self._narrow(name)

    def _attach(self, store: Store, name: str) -> None:
        before = {at: row[1] for at, row in self._cursors(name).items()}
        queue = store.queue(name)
        queue.admin.attach()
        after = {at: row[1] for at, row in self._cursors(name).items()}
        if after != before:
            # The log was trimmed meanwhile, or messages were chosen: it goes on without them.
            assert all(after[at] == max(before[at], self._ends()[1][at]) for at in after)
            self._narrow(name)

    def _drop(self, store: Store, name: str) -> None:
        if name not in ("plain", "chosen", "chain", "tardy"):
            store.queue(name).admin.deactivate()
            store.queue(name).admin.drop()
            self._set(name, None)

    # What they are to get

    def look(self) -> None:
        """Note what the log has that was not seen before."""
        with self._tables() as tables:
            for shard, _, start in tables.execute(_ENDS).fetchall():
                known = [offset for at, offset in self._log if at == shard]
                seen = max(max(known, default=-1) + 1, start)
                # A merge may have put messages into one row with some that were seen.
                for row in tables.execute(_ROWS, (shard, seen)).fetchall():
                    for place, number in enumerate(self._numbers_of(row), row[-1]):
                        self._log[shard, place] = number
                        self._ever.add(number)

    def rewind(self, state: State) -> None:
        """The catalog was restored: its readers are those of then, and so is the log."""
        ends = self._ends()[0]
        self._log = {at: n for at, n in self._log.items() if at[1] < ends[at[0]]}
        for name in sorted({*self.state.stints, *state.stints}):
            self._set(name, state.stints.get(name))
        self.state = state.copy()

    def copied_all(self, store: Store) -> bool:
        """Return whether the query has copied the whole log."""
        if not self.copies:
            return True
        self.look()
        return len(store.queue("c").browse()) >= len(self._log)

    def end(self, store: Store) -> None:
        """Let everybody have what is left, and write down what each was to get."""
        self.look()
        for name in sorted(self.state.stints):
            if name not in store.queues():
                self._set(name, None)
            elif store.queue(name).info.detached_at and not self._has_end(name):
                self._attach(store, name)
        if self.copies:
            copied = Counter(store.queue("c").browse().column("number").to_pylist())
            assert copied == Counter(self._log.values()), "the query has copied something else"
        if self.checked:
            checker = Checker(selective=self._selective)
            checker.check(journal.read(store))
        for name, stint in sorted(self.state.stints.items()):
            queue = store.queue(name)
            found = [queue.browse(), queue.browse(magazine="sideline")]
            rows = pa.concat_tables(found).select(["number", "_message_id"]).to_pydict()
            numbers = rows["number"]
            self._history.delivered(
                "last", numbers, rows["_message_id"], self._history.now, stint.name
            )
            self._history.begin_settling("last", {"delete": numbers}, queue=stint.name)
        for stint in {s.name: s for each in self._stints.values() for _, s in each if s}.values():
            is_last = self.state.stints.get(stint.name.partition("/")[0]) == stint
            wanted = {n for at, n in self._log.items() if stint.has(at, n)} | stint.also
            # Of what a restore has undone, nothing need come.
            for number in sorted(wanted | {n for n in self._ever if stint.wants(n)}):
                self._promise(stint, number, known=is_last and number in wanted)

    def _promise(self, stint: Stint, number: int, *, known: bool) -> None:
        about = {"queue": stint.name, "first": number, "count": 1, "key": "any"}
        load = len(self._history.entries)
        self._history.write("loading", "log", load=load, **about)
        if known:
            self._history.write("loaded", "log", load=load)

    def _stint_of(self, name: str, era: int) -> str:
        found = [stint for since, stint in self._stints[name] if since <= era]
        assert found[-1] is not None, f"{name} was dropped"
        return found[-1].name

    def _set(self, name: str, stint: Stint | None) -> None:
        self._world.era += 1
        self._stints.setdefault(name, []).append((self._world.era, stint))
        if stint is None:
            self.state.stints.pop(name, None)
        else:
            self.state.stints[name] = stint

    def _enter(
        self,
        store: Store,
        name: str,
        wants: Callable[[int], bool],
        also: frozenset[int] = frozenset(),
    ) -> None:
        """Begin a stint at the present cursors of a reader, with other messages."""
        info = store.queue(name).info
        if info.settings.selector is not None:
            self._selective.add(info.id)
        begin, end = self._range(name)
        self._set(name, self._stint(name, begin, end, also, wants))

    def _narrow(self, name: str) -> None:
        """Let a stint go on with less: with what it has now."""
        self._set(name, replace(self._present(name), name=self.state.stints[name].name))

    def _present(self, name: str) -> Stint:
        """Return what a reader still has to do: what it has taken in, and its part of the log."""
        begin, end = self._range(name)
        wants = self.state.stints[name].wants
        taken_in = self._slices(name)
        return self._stint(name, begin, end, taken_in, wants)

    def _stint(
        self,
        name: str,
        begin: _Places,
        end: _Places,
        also: frozenset[int],
        wants: Callable[[int], bool],
    ) -> Stint:
        title = f"{name}/{self._world.era + 1}"
        return Stint(name=title, begin=begin, end=end, also=also, wants=wants)

    def _range(self, name: str) -> tuple[_Places, _Places]:
        rows = self._cursors(name)
        reading = {at: row for at, row in rows.items() if row[0]}
        begin = {at: row[1] for at, row in reading.items()}
        return begin, {at: row[2] for at, row in reading.items() if row[2]}

    def _wants(self, name: str) -> Callable[[int], bool]:
        return _all if name == "a" else self.state.stints[name].wants

    def _some_time(self) -> datetime:
        micros = self._world.now - self._chance.choice([0, 60, 600]) * 1_000_000
        return datetime.fromtimestamp(micros // 60_000_000 * 60, UTC)

    def _name(self, of: str) -> str:
        self._names += 1
        return f"{of}-{self._names}"

    def _see(self, what: str) -> None:
        """Look into a transaction, at its end."""
        client = current()
        if what == "trim.before_commit":
            self.look()
        elif what == "fire.before_commit" and client is not None:
            client.era = self._world.era

    # The tables

    def _tables(self) -> Any:
        return _closing(Path(self._address.catalog.removeprefix("sqlite:///")))

    def _has_end(self, name: str) -> bool:
        return any(end for _, _, end in self._cursors(name).values())

    def _cursors(self, name: str) -> dict[int, tuple[int, int, int]]:
        with self._tables() as tables:
            return {row[0]: row[1:] for row in tables.execute(_CURSORS, (name,)).fetchall()}

    def _ends(self) -> tuple[_Places, _Places]:
        """Return where each shard of the log ends, and where it begins."""
        with self._tables() as tables:
            rows = tables.execute(_ENDS).fetchall()
        return {row[0]: row[1] for row in rows}, {row[0]: row[2] for row in rows}

    def _slices(self, name: str, *, waiting: bool = False) -> frozenset[int]:
        """Return the numbers of all slices of a queue; *waiting*: of those that nobody holds."""
        with self._tables() as tables:
            rows = tables.execute(_SLICES, (name, not waiting)).fetchall()
        numbers = [number for row in rows for number in self._numbers_of(row)]
        assert len(numbers) == len({*numbers})
        return frozenset(numbers)

    def _numbers_of(self, row: tuple[Any, ...]) -> list[int]:
        start, stop, bitmap, data, file, chunks, compacted = row[:7]
        data = (Path(self._address.storage) / file).read_bytes() if file else data
        schema = pa.schema([*ORDERS, *COMPACTED]) if compacted else ORDERS
        buffer = pa.py_buffer(data)
        rows = pa.Table.from_batches(
            decode(buffer.slice(c.offset, c.length), c, schema, "a log")
            for c in unpack_chunks(chunks)
        )
        at = rows.columns[-1].to_pylist() if compacted else range(len(rows))
        numbers = dict(zip(at, rows.column("number").to_pylist(), strict=True))
        wanted = Rows.from_bytes(start, stop, bitmap).numbers().tolist()
        return [numbers[each] for each in wanted]


class _closing:
    """A connection to a catalog, beside those of the product."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _all(_: int) -> bool:
    return True
