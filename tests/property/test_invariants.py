"""All verbs in any order, on a real store and on a model: after every step the two agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.holder_tables import consumers as consumer_rows
from queue_core.catalog.holders import consumers
from queue_core.catalog.slices import rewritable
from queue_core.catalog.slices.id_map import physical
from queue_core.errors import BadOption, SchemaMismatch
from queue_core.segments import stager
from queue_core.segments.reader import read_table
from queue_core.selection.fired import Fired
from queue_core.selection.request import Demand
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.values.address import Address
from queue_core.values.model import HandlingConsumer, Magazine, State, Ticket
from queue_core.values.outcomes import DELETE, OUTCOMES, RELOAD, SIDELINE, Settlement
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.intervene import Act
from queue_core.verbs.quarantine import quarantine
from queue_core.verbs.read_tickets import plan_firing
from tests.books import audit
from tests.clocks import make_due
from tests.factories import make_queue, planned, seen
from tests.model import journal
from tests.model.conformance import Checker
from tests.property.choices import FAIR, GROUPED, URGENT, first_part, lane_of
from tests.property.losing import POOLS, Losing
from tests.property.model import Message, Model

#: Each queue, its shards and its key.
QUEUES = {
    "keyed": (3, "customer"),
    "plain": (1, None),
    "wide": (2, None),
    FAIR: (2, None),
    GROUPED: (2, "customer"),
    URGENT: (2, None),
}
#: Queues that fire by the values of messages; a query does so too, in tests of its own.
SELECTING = (GROUPED, URGENT)
SETTINGS = {
    FAIR: {"fair_by": "customer", "fair_weights": {"a": 3}},
    GROUPED: {"group": "customer"},
    URGENT: {"priority": "number"},
}
#: Plain processes that fire, beside the query.
TILLS = ("till-1", "till-2")
QUERY = "query"
#: Reloaded with a delay.
LATER = "later"
#: Whoever can hold messages.
HOLDERS = (*TILLS, QUERY, *POOLS)
COUNTS = ("loaded", "fired", "reloaded", "deleted", "sidelined", "shovelled", "swept", "damaged")

queue_names = st.sampled_from(sorted(QUEUES))
magazines = st.sampled_from(Magazine)
limits = st.one_of(st.none(), st.integers(1, 12))
customers = st.lists(st.sampled_from("abcde"), min_size=1, max_size=12)


class Verbs(Losing, RuleBasedStateMachine):
    """A store, its model, and every verb."""

    def __init__(self, new_address: Callable[[], Address]) -> None:
        super().__init__()
        self.stack = ExitStack()
        # Small, so that a few messages already have several segments, chunks and runs.
        for name, size in {"CHUNK_ROWS": 3, "RUN_BYTES": 200, "INLINE_BYTES": 150}.items():
            self.stack.enter_context(mock.patch.object(stager, name, size))
        self.stack.enter_context(mock.patch.object(rewritable, "NEIGHBOURS", 2))
        self.address = new_address()
        self.store = Store(self.address)
        # The specification judges each transaction; the model says which messages it is about.
        self.stack.enter_context(journal.marks())
        journal.install(self.store)
        self.model = Model()
        self.number = 0
        #: Those of the query, and the last one that it is done with.
        self.tickets: dict[int, Ticket] = {}
        #: The lives of processes with handlers.
        self.lives: dict[str, HandlingConsumer] = {}

    def teardown(self) -> None:
        found = self.store.admin.fsck(deep=True)["invariant"].to_pylist()
        # What a step has quarantined is still so.
        assert {*found} <= {"I31"}
        Checker().check(journal.read(self.store))
        self.store.close()
        self.stack.close()

    # --- helpers ------------------------------------------------------------------------------

    def queue(self, name: str):
        return self.store.queue(name)

    def who(self, name: str):
        with self.store.catalog.read() as connection:
            return consumers.by_name(connection, name)

    def let_all_die(self) -> None:
        """No heart has beaten for an hour."""
        earlier = consumer_rows.c.heartbeat_at - 3600 * 10**6
        dead = update(consumer_rows).values(heartbeat_at=earlier)
        self.store.catalog.write(lambda connection: connection.execute(dead))

    def let_all_live(self) -> None:
        for name in (QUERY, *self.lives):
            beat = partial(consumers.heartbeat, consumer=self.who(name))
            self.store.catalog.write(beat)

    def segment_of(self, message: Message) -> int:
        """Where compaction has put it."""
        queue_id = self.queue(message.queue).info.id
        with self.store.catalog.read() as connection:
            (found,) = physical(connection, [queue_id], np.array([message.id]))
        return int(found) >> 20

    def note_fired(self, ids: list[int], consumer: str, ticket: int) -> None:
        for id in ids:
            self.model.fire(self.model.messages[id], consumer, ticket)

    def check_fired(
        self,
        ids: list[int],
        queue: str,
        magazine: Magazine,
        eligible: Callable[[Message], bool] = lambda _: True,
        *,
        limit: int | None = None,
        even_fewer: bool = False,
        pool: str | None = None,
    ) -> None:
        """Of each shard the first eligible ones were taken; of a fair queue, those of customers."""
        part = first_part(self.model, queue, magazine, eligible, pool)
        most = min(n for n in (limit, part.most, len(part.messages)) if n is not None)
        assert min(most, 1) <= len(ids) <= most if even_fewer else len(ids) == most
        fired, could = defaultdict(list), defaultdict(list)
        for id in ids:
            fired[lane_of(self.model.messages[id])].append(id)
        for message in part.messages:
            could[lane_of(message)].append(message.id)
        if queue == URGENT:
            first = sorted(part.messages, key=lambda message: -message.number)
            assert set(ids) == {message.id for message in first[: len(ids)]}
            return
        for flow, these in fired.items():
            assert these == could[flow][: len(these)]

    # --- rules --------------------------------------------------------------------------------

    @initialize()
    def create(self) -> None:
        for name, (shards, key) in QUEUES.items():
            how = SETTINGS.get(name, {})
            make_queue(self.store, name, shards=shards, key=key, attributes=["number"], **how)
        for name in TILLS:
            self.store.consumer(name)
        self.store.consumer(QUERY, beats=True)
        for name in POOLS:
            self.start(name)

    @rule(name=queue_names, customers=customers, inlined=st.booleans())
    def load(self, name: str, customers: list[str], inlined: bool) -> None:
        first, self.number = self.number, self.number + len(customers)
        numbers = range(first, self.number)
        rows = [{"number": n, "customer": c} for n, c in zip(numbers, customers, strict=True)]
        with mock.patch.object(stager, "INLINE_BYTES", 10**6 if inlined else 0):
            ids = self.queue(name).load(rows).to_pylist()
        there = self.queue(name).browse().select(["_message_id", "_shard"]).to_pylist()
        shard = {row["_message_id"]: row["_shard"] for row in there}
        assert not set(ids) & self.model.messages.keys()
        loaded = dict(zip(ids, rows, strict=True))
        for id in ids if name != FAIR else [id for id in shard if id in loaded]:
            self.model.load(Message(id=id, queue=name, shard=shard[id], **loaded[id]))

    @rule(name=queue_names, magazine=magazines, limit=limits, till=st.sampled_from(TILLS))
    def fire(self, name: str, magazine: Magazine, limit: int | None, till: str) -> None:
        queue, where = self.queue(name), magazine.name.lower()
        shown = queue.peek(limit or 10**6, magazine=where).column("_message_id").to_pylist()

        firing = queue.fire(limit or "all", magazine=where, consumer=self.who(till))

        ids = firing.ids.to_pylist()
        assert ids == shown
        self.check_fired(ids, name, magazine, limit=limit)
        if firing:
            self.note_fired(ids, till, firing.ticket.number)

    @rule(name=queue_names, size=st.integers(1, 2000), till=st.sampled_from(TILLS))
    def fire_bytes(self, name: str, size: int, till: str) -> None:
        firing = self.queue(name).fire(max_bytes=size, consumer=self.who(till))

        self.check_fired(firing.ids.to_pylist(), name, Magazine.MAIN, even_fewer=True)
        if firing:
            self.note_fired(firing.ids.to_pylist(), till, firing.ticket.number)

    @rule(name=queue_names, modulus=st.integers(2, 4), limit=limits, till=st.sampled_from(TILLS))
    def fire_selected(self, name: str, modulus: int, limit: int | None, till: str) -> None:
        firing = self.queue(name).fire(
            limit or "all", selector=f"number % {modulus} = 1", consumer=self.who(till)
        )

        ids = firing.ids.to_pylist()
        self.check_fired(ids, name, Magazine.MAIN, lambda m: m.number % modulus == 1, limit=limit)
        if firing:
            self.note_fired(ids, till, firing.ticket.number)

    @rule(name=queue_names, limit=st.integers(1, 6), till=st.sampled_from(TILLS))
    def fire_ordered(self, name: str, limit: int, till: str) -> None:
        if name == FAIR:
            with pytest.raises(BadOption):
                self.queue(name).fire(limit, order_by="number DESC")
            return
        firing = self.queue(name).fire(limit, order_by="number DESC", consumer=self.who(till))

        part = first_part(self.model, name, Magazine.MAIN)
        newest = sorted((m.number for m in part.messages), reverse=True)
        most = limit if part.most is None else min(limit, part.most)
        assert firing.messages.column("number").to_pylist() == newest[:most]
        if firing:
            self.note_fired(firing.ids.to_pylist(), till, firing.ticket.number)

    @rule(name=queue_names.filter(lambda n: n not in SELECTING), magazine=magazines, limit=limits)
    def fire_unseen(self, name: str, magazine: Magazine, limit: int | None) -> None:
        """As a streaming query does, which may die before anybody sees the messages."""
        queue = self.queue(name)
        ticket = planned(self.store, queue, self.who(QUERY), limit, magazine=magazine)
        if ticket is None:
            assert not any(self.model.waiting(name, magazine).values())
            return
        request = Demand().request([queue.info], None, self.store.storage.uri)
        held = plan_firing(self.store.catalog, ticket, Fired(), request)
        ids = read_table(held, ["_message_id"]).column(0).to_pylist()
        assert len(ids) == ticket.messages
        self.check_fired(ids, name, magazine, limit=limit)
        self.note_fired(ids, QUERY, ticket.number)
        self.model.seen[ticket.number] = False
        self.tickets[ticket.number] = ticket

    @precondition(lambda self: self.model.seen)
    @rule(data=st.data())
    def plan(self, data) -> None:
        """A ticket gives the same messages each time."""
        number = data.draw(st.sampled_from(sorted(self.model.seen)))
        # A plan without the queue of its messages is refused.
        ours = {m.queue for m in self.model.in_hand() if m.holder == (QUERY, number)}
        for message in self.model.in_hand():
            if message.holder == (QUERY, number) and message.state is State.DAMAGED:
                # The batch is planned without it.
                message.holder = None
        held = [m for m in self.model.in_flight() if m.holder == (QUERY, number)]
        for name in ours or QUEUES:
            queue, ticket = self.queue(name), self.tickets[number]
            first, again = (seen(self.store, queue, ticket) for _ in range(2))
            assert first == again
            ids = read_table(first, ["_message_id"]).column(0).to_pylist()
            assert ids == [message.id for message in held if message.queue == name]
        self.model.seen[number] = True

    @rule(delete=st.booleans(), data=st.data())
    def acknowledge(self, delete: bool, data) -> None:
        upto = data.draw(st.integers(0, max(self.tickets, default=0)))
        held = [
            message
            for message in self.model.in_hand()
            if message.holder[0] == QUERY and message.holder[1] <= upto
        ]
        deleted = acknowledge(self.store.catalog, self.who(QUERY), upto, delete=delete)

        assert deleted == (len(held) if delete else 0)
        self.model.done[QUERY] = max(upto, self.model.done[QUERY])
        self.model.seen = {n: seen for n, seen in self.model.seen.items() if n > upto}
        for message in held if delete else []:
            self.model.delete(message)

    @precondition(lambda self: self.model.messages)
    @rule(name=queue_names, data=st.data(), whose=st.sampled_from([None, *HOLDERS]))
    def settle(self, name: str, data, whose: str | None) -> None:
        """Any messages, in flight or not, get any outcomes."""
        ids = [message.id for message in self.model.in_order() if message.queue == name]
        some = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
        outcomes = {id: data.draw(st.sampled_from([*OUTCOMES, LATER])) for id in some}
        settlement = Settlement.of(
            pa.table(
                {
                    "_message_id": some,
                    "outcome": [RELOAD if end == LATER else end for end in outcomes.values()],
                    "delay": [1000.0 if end == LATER else None for end in outcomes.values()],
                },
                schema=pa.schema(
                    [("_message_id", pa.int64()), ("outcome", pa.string()), ("delay", pa.float64())]
                ),
            )
        )

        settled = self.queue(name).settle(settlement, self.who(whose) if whose else None)

        held = [
            message
            for message in self.model.in_hand(name)
            if message.id in outcomes and whose in (None, message.holder[0])
        ]
        assert settled == len(held)
        become = {
            DELETE: self.model.delete,
            SIDELINE: self.model.sideline,
            RELOAD: self.model.settle_again,
            LATER: self.model.put_off,
        }
        for message in held:
            become[outcomes[message.id]](message)

    @rule(name=queue_names, act=st.sampled_from(list(Act)), data=st.data())
    def intervene(self, name: str, act: Act, data) -> None:
        """A person chooses any messages, and deletes, sidelines, requeues or reloads them."""
        ids = [message.id for message in self.model.in_order() if message.queue == name]
        some = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
        whose = data.draw(st.sampled_from(HOLDERS))
        chosen = self.queue(name).choose(some)
        expected = [
            message
            for message in self.model.in_order()
            if message.id in some and self.model.concerns(act, message, whose)
        ]

        if act is Act.RELOAD:
            assert chosen.count(act, consumer=whose) == len(expected)
            assert chosen.reload(consumer=whose) == len(expected)
        else:
            assert chosen.count(act) == len(expected)
            assert getattr(chosen, act)() == len(expected)

        for message in expected:
            self.model.intervene(act, message)

    @rule(name=queue_names, limit=limits)
    def shovel(self, name: str, limit: int | None) -> None:
        waiting = self.model.waiting(name, Magazine.SIDELINE)

        moved = self.queue(name).shovel(limit)

        everything = [m for shard in sorted(waiting) for m in waiting[shard] if not m.dead]
        assert moved == min(limit or len(everything), len(everything))
        for message in everything[:moved]:
            self.model.shovel(message)

    @rule(names=st.permutations(sorted(QUEUES)), modulus=st.integers(1, 3))
    def redrive(self, names: list[str], modulus: int) -> None:
        """The sideline, or a part of it, goes to another queue, whose columns may be too few."""
        source, target = self.queue(names[0]), self.queue(names[1])
        waiting = self.model.waiting(names[0], Magazine.SIDELINE).values()
        alive = [m for messages in waiting for m in messages if not m.dead]
        moved = [m for m in alive if m.number % modulus == 0]
        if set(source.schema.names) - set(target.schema.names):
            with pytest.raises(SchemaMismatch):
                source.shovel(to=names[1])
            return

        assert source.shovel(to=names[1], selector=f"number % {modulus} = 0") == len(moved)

        columns = ["_message_id", "number", "customer", "_shard"]
        there = target.browse().select(columns).to_pylist()
        for message in moved:
            self.model.leave(message)
        numbers = {message.number for message in moved}
        for id, number, customer, shard in (row.values() for row in there):
            if number in numbers:
                fields = {"number": number, "customer": customer, "shard": shard}
                self.model.load(Message(id=id, queue=names[1], **fields))

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data())
    def edit(self, data) -> None:
        """Only a message that waits in the sideline is edited, and then it waits in main."""
        message = self.model.messages[data.draw(st.sampled_from(sorted(self.model.messages)))]
        number, self.number = self.number, self.number + 1
        if (message.magazine, message.state) != (Magazine.SIDELINE, State.LOADED):
            with pytest.raises(BadOption):
                self.queue(message.queue).edit(message.id, {"number": number})
            return
        self.queue(message.queue).edit(message.id, {"number": number})
        message.number = number
        self.model.shovel(message)

    @rule(name=queue_names)
    def retry(self, name: str) -> None:
        """The time of all messages that wait for one has come."""
        make_due(self.store)
        waiting = self.model.waiting(name, Magazine.SIDELINE)

        ran, _ = Retries(self.store.catalog, self.store.storage).run([name])

        due = [message for shard in sorted(waiting) for message in waiting[shard] if message.due]
        assert sum(each.moved for each in ran) == len(due)
        for message in due:
            self.model.shovel(message)

    @rule(name=queue_names, dead=st.booleans())
    def sweep(self, name: str, dead: bool) -> None:
        """All messages in flight are old enough; those of the living are left alone."""
        # Their last heartbeats may be old, after many slow steps.
        (self.let_all_die if dead else self.let_all_live)()
        swept = self.queue(name).sweep(0)
        self.let_all_live()

        guilty = []
        for holder in (QUERY, *POOLS) if dead else ():
            in_main = [m for m in self.model.in_life(holder) if m.magazine is Magazine.MAIN]
            if any(message.queue == name for message in in_main):
                guilty.append(self.model.lose(holder))
        stuck = [
            message
            for message in self.model.in_flight(name)
            if dead
            or message.holder[0] in TILLS
            or message.holder[1] <= self.model.done[message.holder[0]]
        ]
        assert swept == len(stuck) + len([each for each in guilty if each])
        for message in stuck:
            self.model.sweep(message)

    @rule()
    def recover(self) -> None:
        """The query has died; its unseen messages go back."""
        self.let_all_die()
        given_back = self.store.admin.recover()
        self.let_all_live()

        unseen = {number for number, seen in self.model.seen.items() if not seen}
        held = [
            message
            for message in self.model.in_flight()
            if message.holder[0] == QUERY and message.holder[1] in unseen
        ]
        assert given_back == len(held)
        for message in held:
            self.model.give_back(message)
        for message in self.model.in_hand():
            if message.holder[0] == QUERY and message.holder[1] in unseen:
                message.holder = None
        for number in unseen:
            del self.model.seen[number]

    @precondition(lambda self: self.model.messages and not self.model.any(State.DAMAGED))
    @rule(data=st.data())
    def set_apart(self, data) -> None:
        """Somebody reports that a segment cannot be read."""
        locations = {
            row["segment_id"]: row["location"] for row in self.store.view("slices").to_pylist()
        }
        segment, location = data.draw(st.sampled_from(sorted(locations.items())))
        self.store.storage.report_damage(location or f"inlined/{segment}", "said so")

        apart = quarantine(self.store.catalog, self.store.storage)

        of_it = [m for m in self.model.in_order() if self.segment_of(m) == segment]
        sound = [message for message in of_it if message.state is not State.DAMAGED]
        assert apart == len(sound)
        for message in sound:
            self.model.set_apart(message)

    @rule(name=queue_names)
    def repair(self, name: str) -> None:
        repaired = self.queue(name).admin.repair().messages

        damaged = [m for m in self.model.in_order() if (m.queue, m.state) == (name, State.DAMAGED)]
        assert repaired == len(damaged)
        for message in damaged:
            self.model.repair(message)

    @rule(name=queue_names)
    def compact(self, name: str) -> None:
        """Only the number of slices shows it."""
        self.queue(name).admin.compact()

    @rule()
    def vacuum(self) -> None:
        self.store.admin.vacuum(grace=0)

    @rule(name=queue_names, column=st.sampled_from(["x", "y", "z"]))
    def add_column(self, name: str, column: str) -> None:
        self.queue(name).admin.add_columns(pa.schema([(column, pa.string())]))

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = Store(self.address)

    # --- invariants ---------------------------------------------------------------------------

    @invariant()
    def every_message_is_in_one_place_and_it_is_the_right_one(self) -> None:
        books = audit(self.store)
        assert books.messages == {
            message.id: (message.magazine, message.state)
            for message in self.model.messages.values()
        }

    @invariant()
    def counters_are_those_of_the_model(self) -> None:
        for row in self.store.view("shards").to_pylist():
            place = (row["queue"], Magazine[row["magazine"].upper()], row["shard"])
            counted = {name: row[name] for name in COUNTS if row[name]}
            assert counted == {n: c for n, c in self.model.counts[place].items() if c}, place

    @invariant()
    def messages_are_in_order_and_keep_what_they_say(self) -> None:
        columns = ["_message_id", "number", "customer", "_queue", "_shard", "_attempt"]
        for name in self.store.queues():
            for magazine in Magazine:
                found = self.queue(name).browse(magazine=magazine.name.lower())
                assert [tuple(row.values()) for row in found.select(columns).to_pylist()] == [
                    (m.id, m.number, m.customer, m.queue, m.shard, m.attempts)
                    for m in self.model.in_order()
                    if (m.queue, m.magazine) == (name, magazine) and m.state is not State.DAMAGED
                ]

    @invariant()
    def who_holds_what_and_how_often_it_was_fired_is_known(self) -> None:
        holding, fired = defaultdict(int), 0
        for row in self.store.view("slices").to_pylist():
            fired += row["deliveries"] * row["messages"]
            if row["state"] == "fired":
                holding[row["consumer"], row["ticket"]] += row["messages"]
        expected = defaultdict(int)
        for message in self.model.in_flight():
            expected[message.holder] += 1
        assert holding == expected
        assert fired == sum(message.deliveries for message in self.model.messages.values())

    @invariant()
    def suspects_are_known(self) -> None:
        found, expected = Counter(), Counter()
        for row in self.store.view("slices").to_pylist():
            place = (row["queue"], row["magazine"], row["lost"], row["lost_among"])
            found[place] += row["messages"]
        for message in self.model.messages.values():
            magazine = message.magazine.name.lower()
            expected[message.queue, magazine, message.lost, message.lost_among] += 1
        assert found == expected


def check(machine: Callable[[], RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )


catalogs = pytest.mark.parametrize(
    "new_address",
    ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)],
    indirect=True,
)


@catalogs
def test_the_store_does_what_the_model_does(new_address, request):
    on_sqlite = "sqlite" in request.node.name
    examples = settings.default.max_examples // (6 if on_sqlite else 13)
    check(lambda: Verbs(new_address), examples=examples, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@catalogs
def test_the_store_does_what_the_model_does_for_long(new_address, request):
    on_sqlite = "sqlite" in request.node.name
    check(lambda: Verbs(new_address), examples=600 if on_sqlite else 150, steps=60)
