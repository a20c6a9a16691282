"""The invariants have numbers in a row, and each says one thing."""

from queue_core.catalog.checks.invariants import INVARIANTS


def test_the_numbers_are_in_a_row():
    assert list(INVARIANTS) == [f"I{number}" for number in range(1, len(INVARIANTS) + 1)]


def test_each_says_something_of_its_own():
    assert len(set(INVARIANTS.values())) == len(INVARIANTS)
    assert all(len(text) > 20 and not text.endswith(".") for text in INVARIANTS.values())
