"""The list of consumers: append, delete and pass over it, by one thread and by several."""

import threading
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from queue_core.consumers.entries import EntryList
from tests.waiting import PATIENCE, Caller, all_at_once


def chained(entries):
    """How many entries there are in the chain, deleted ones too."""
    count, entry = 0, entries._head
    while (entry := entry._following) is not None:
        count += 1
    return count


def test_a_deleted_entry_is_only_marked_and_left_out_by_the_next_pass():
    entries = EntryList()
    kept = [entries.append(number) for number in range(4)]
    kept[1].delete()
    assert chained(entries) == 4

    assert list(entries) == [0, 2, 3]
    assert chained(entries) == 3


def test_a_pass_that_stands_on_a_deleted_entry_goes_on():
    entries = EntryList()
    kept = [entries.append(number) for number in range(5)]
    passing = iter(entries)
    assert [next(passing), next(passing)] == [0, 1]

    kept[1].delete()
    assert list(entries) == [0, 2, 3, 4]
    kept[2].delete()
    kept[4].delete()
    entries.append(5)

    assert list(passing) == [3, 5]
    assert chained(entries) == len(entries) + entries._deleted


def test_a_pass_that_looks_at_an_item_does_not_block_others():
    entries = EntryList()
    entries.append("a")
    for _ in entries:
        Caller(lambda: entries.append("b").delete()).done()


def test_deleted_entries_do_not_pile_up_in_a_list_without_passes():
    entries = EntryList()
    for number in range(10_000):
        entries.append(number).delete()

    assert chained(entries) < 100


class Machine(RuleBasedStateMachine):
    """Against a plain list; passes stop anywhere and continue."""

    entries_of = Bundle("entries_of")

    def __init__(self):
        super().__init__()
        self.entries = EntryList()
        self.model = []
        self.numbers = 0
        self.passing = None

    @rule(target=entries_of)
    def append(self):
        self.numbers += 1
        self.model.append(self.numbers)
        return self.entries.append(self.numbers)

    @rule(entry=consumes(entries_of))
    def delete(self, entry):
        assert entry.delete()
        assert not entry.delete()
        self.model.remove(entry.item)

    @rule()
    def begin_a_pass(self):
        self.passing = (iter(self.entries), 0)

    @rule()
    def go_on_with_a_pass(self):
        if self.passing is not None:
            passing, last = self.passing
            item = next(passing, None)
            ahead = [number for number in self.model if number > last]
            assert item == (ahead[0] if ahead else None)
            self.passing = None if item is None else (passing, item)

    @rule()
    def pass_over_all(self):
        assert list(self.entries) == self.model
        # Only a deleted tail stays in the chain, until another entry is appended.
        assert chained(self.entries) <= len(self.model) + 1

    @invariant()
    def sizes_agree(self):
        assert len(self.entries) == len(self.model)
        assert chained(self.entries) == len(self.entries) + self.entries._deleted

    def teardown(self):
        self.pass_over_all()


def test_it_does_what_a_plain_list_does():
    run_state_machine_as_test(Machine, settings=settings(max_examples=60, stateful_step_count=40))


@settings(max_examples=20)
@given(st.lists(st.lists(st.booleans(), max_size=60), min_size=2, max_size=4), st.integers(0, 9))
def test_threads_lose_and_add_no_items(scripts, seed):
    """Each thread appends, deletes its own or its neighbour's entries, and passes over all."""
    entries = EntryList()
    shared = [[] for _ in scripts]
    deletions = [0] * len(scripts)
    barrier = threading.Barrier(len(scripts))
    passes = []

    def work(me):
        barrier.wait(PATIENCE)
        for number, appends in enumerate(scripts[me]):
            if appends:
                shared[me].append(entries.append((me, number)))
            else:
                others = shared[(me + (number + seed) % 2) % len(scripts)]
                if others:
                    deletions[me] += others[(number * seed) % len(others)].delete()
            if number % 7 == 0:
                passes.append([item[1] for item in entries if item[0] == me])

    all_at_once(*(partial(work, me) for me in range(len(scripts))))

    appended = [entry for mine in shared for entry in mine]
    assert sum(deletions) == sum(entry.deleted for entry in appended)
    assert sorted(entries) == sorted(entry.item for entry in appended if not entry.deleted)
    assert len(entries) == len(list(entries))
    assert all(seen == sorted(set(seen)) for seen in passes)
    assert chained(entries) <= len(entries) + 1
