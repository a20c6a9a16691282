"""The ledger finds the faults of a bad history, and none in a good one."""

import pytest

from tests.simulation.ledger import Ledger

PATIENCE = 100.0


@pytest.fixture
def ledger():
    """One message that was loaded, copied and handed to a client that deleted it."""
    made = Ledger(patience=PATIENCE)
    load(made, 1)
    copy(made, 1)
    hand(made, 1)
    made.finished([1], certain=True)
    return made


def load(ledger, *numbers, key=None):
    ledger.loads(list(numbers), key)
    ledger.loaded(list(numbers))


def copy(ledger, *numbers):
    ledger.publishing(list(numbers))
    ledger.published(list(numbers))


def hand(ledger, *numbers, holder="one", now=0.0):
    ledger.handed(holder, list(numbers), now, now)


def test_a_good_history(ledger):
    load(ledger, 2, 3)
    ledger.loads([4])

    assert ledger.faults_of([2], [3]) == []
    assert ledger.counts["attempted"] == 4
    assert ledger.counts["acknowledged"] == 3


def test_a_lost_message(ledger):
    load(ledger, 2)

    assert ledger.faults_of([], []) == ["2 is lost"]


def test_a_message_that_was_published_and_is_nowhere_is_lost(ledger):
    load(ledger, 2)
    copy(ledger, 2)

    assert ledger.faults_of([], []) == ["2 is lost"]


def test_a_message_that_was_handed_out_and_not_finished_is_lost(ledger):
    load(ledger, 2)
    hand(ledger, 2)

    assert ledger.faults_of([], []) == ["2 is lost"]


def test_an_unexpected_message(ledger):
    assert ledger.faults_of([], [7]) == ["7 is unexpected: nobody loaded it"]
    hand(ledger, 8)
    assert "8 is delivered, and nobody loaded it" in ledger.faults_of([], [])


@pytest.mark.parametrize("there", [[1], [1, 1]])
def test_a_doubled_message(ledger, there):
    (wrong,) = ledger.faults_of([], there)
    assert wrong.startswith("1 is doubled")


def test_a_source_that_holds_a_message_twice(ledger):
    load(ledger, 2)
    assert ledger.faults_of([2, 2], []) == ["the source holds a message twice"]


def test_a_deletion_that_returns_after_the_restore_that_undid_it(ledger):
    load(ledger, 2)
    copy(ledger, 2)
    hand(ledger, 2)
    backed_up = before = ledger.entry
    ledger.restored("near", backed_up)
    ledger.finished([2], certain=True, begun=before)
    hand(ledger, 2, holder="two")
    ledger.finished([2], certain=True)

    assert ledger.faults_of([], []) == []


def test_a_message_that_comes_after_it_was_finished(ledger):
    hand(ledger, 1, holder="two")

    assert ledger.faults_of([], []) == ["1 is handed to two after it was finished"]


def test_a_message_that_may_have_been_finished_may_come_again(ledger):
    load(ledger, 2)
    hand(ledger, 2)
    ledger.finished([2], certain=False)
    hand(ledger, 2, holder="two")
    ledger.finished([2], certain=True)

    assert ledger.faults_of([], []) == []


def test_a_message_that_two_hold(ledger):
    load(ledger, 2)
    hand(ledger, 2)
    hand(ledger, 2, holder="two", now=PATIENCE - 1)

    assert ledger.faults_of([], [2]) == ["2 is handed to two while one holds it"]


def test_a_message_that_was_swept_or_given_back_comes_to_another(ledger):
    load(ledger, 2, 3)
    hand(ledger, 2, 3)
    ledger.freed([3])
    hand(ledger, 3, holder="two", now=1)
    hand(ledger, 2, holder="two", now=PATIENCE)

    assert ledger.faults_of([], [2, 3]) == []


def test_a_firing_that_returns_after_a_restore_that_forgot_it(ledger):
    load(ledger, 2)
    backed_up = before = ledger.entry
    load(ledger, 3)
    ledger.restored("near", backed_up)
    ledger.handed("one", [2], 0, 0, before)
    hand(ledger, 2, holder="two")
    hand(ledger, 2, holder="three")

    assert ledger.faults_of([], [2]) == ["2 is handed to three while two holds it"]


def test_two_copies_after_a_restore_may_have_two_holders():
    ledger = Ledger(source="near", target="far")
    load(ledger, 1, 2)
    copy(ledger, 2)
    backed_up = ledger.entry
    copy(ledger, 1)
    ledger.restored("near", backed_up)
    copy(ledger, 1)
    for holder in ("one", "two"):
        ledger.handed(holder, [1, 2], 0, -1)

    assert ledger.violations == ["2 is handed to two while one holds it"]


def test_a_restore_excuses_only_what_it_certainly_lost(ledger):
    load(ledger, 2)
    backed_up = ledger.entry
    load(ledger, 3)
    ledger.restored("near", backed_up)
    load(ledger, 4)

    assert ledger.faults_of([], []) == ["2 is lost", "4 is lost"]


def test_a_restore_excuses_a_copy_that_it_took_back():
    ledger = Ledger(source="near", target="far")
    load(ledger, 1, 2)
    backed_up = ledger.entry
    copy(ledger, 1)
    ledger.restored("far", backed_up)
    copy(ledger, 2)

    assert ledger.faults_of([], []) == ["2 is lost"]


def test_a_restore_of_the_source_excuses_a_second_copy():
    ledger = Ledger(source="near", target="far")
    load(ledger, 1, 2)
    copy(ledger, 2)
    backed_up = ledger.entry
    copy(ledger, 1)
    ledger.restored("near", backed_up)

    (wrong,) = ledger.faults_of([], [1, 1, 2, 2])
    assert wrong.startswith("2 is doubled")


def test_a_restore_of_another_store_excuses_nothing():
    ledger = Ledger(source="near", target="near")
    load(ledger, 1)
    ledger.restored("far", 0)

    assert ledger.faults_of([], []) == ["1 is lost"]


def test_a_finished_message_comes_again_after_a_restore(ledger):
    ledger.restored("near", 3)
    hand(ledger, 1, holder="two")

    assert ledger.faults_of([], [1]) == []


def test_only_the_last_version_must_arrive(ledger):
    load(ledger, 2, 3, key="a")
    load(ledger, 4, key="a")
    assert ledger.faults_of([], [4]) == []
    assert ledger.faults_of([], []) == ["4 is lost"]


def test_a_version_that_nobody_acknowledged_replaces_nothing_unless_it_is_there(ledger):
    load(ledger, 2, key="a")
    ledger.loads([3], key="a")

    assert ledger.faults_of([], []) == ["2 is lost"]
    assert ledger.faults_of([], [3]) == []


def test_a_sweep_of_a_dead_query_explains_a_second_copy(ledger):
    load(ledger, 2, 3)
    ledger.excuse([2], "swept")

    (wrong,) = ledger.faults_of([], [2, 2, 3, 3])
    assert wrong.startswith("3 is doubled")
