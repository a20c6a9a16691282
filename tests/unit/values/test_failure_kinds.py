"""Kinds and reasons of failures, as users and exceptions give them."""

import pytest

from queue_core.errors import BadOutcome
from queue_core.values.failure_kinds import (
    FAILURE_LOG,
    REASON_LENGTH,
    REASONS,
    check_kind,
    readable,
    reason_of,
)


@pytest.mark.parametrize("kind", ["rejected", "no_funds", "k9", "a" * 32])
def test_a_kind_is_one_word(kind):
    assert check_kind(kind) == kind


@pytest.mark.parametrize("kind", ["", "No", "two words", "9k", "a" * 33, None, 5, "a\n"])
def test_anything_else_is_not_a_kind(kind):
    with pytest.raises(BadOutcome, match="use one word of lower-case letters"):
        check_kind(kind)


def test_a_reason_is_cut_and_can_always_be_stored():
    assert readable("no funds") == "no funds"
    assert len(readable("x" * (REASON_LENGTH + 5))) == REASON_LENGTH
    # A file name that is not UTF-8, as Python shows it.
    assert readable("\udcff").encode() == rb"\udcff"


def test_an_exception_is_named_with_its_text():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    assert reason_of(ValueError("no such customer")) == "ValueError: no such customer"
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(Mute()) == "Mute: (its message cannot be shown)"


def test_the_log_has_the_columns_of_a_settlement_first():
    assert FAILURE_LOG.names[: len(REASONS)] == REASONS.names
