"""Trouble: an attempt that is too early is not made, and an error is logged when it is new."""

import logging

import pytest

from queue_core.errors import (
    CatalogUnavailable,
    DamagedSegment,
    IgnisError,
    SchemaMismatch,
    StorageUnavailable,
)
from queue_core.pool import outage
from queue_core.pool.outage import Trouble
from queue_core.pool.timings import RETRY_SECONDS
from queue_core.support import outage_log
from tests.clocks import Stopwatch


@pytest.fixture
def clock(monkeypatch):
    return Stopwatch(monkeypatch, outage, outage_log)


@pytest.fixture
def over():
    """One entry for each end of the trouble."""
    return []


@pytest.fixture
def trouble(clock, over):
    return Trouble("orders", lambda: over.append(True))


def attempt(trouble, error=None):
    """Attempt something; return whether it was done, and the error."""
    done = []
    try:
        with trouble.attempt():
            done.append(True)
            if error is not None:
                raise error
    except IgnisError as raised:
        return bool(done), raised
    return bool(done), None


def test_an_attempt_is_made_again_after_a_while_and_not_before(trouble, clock, over):
    lost = StorageUnavailable("lost")
    assert attempt(trouble, lost) == (True, lost)
    clock.now += RETRY_SECONDS / 2
    assert attempt(trouble) == (False, lost)
    assert (trouble.error, over) == (lost, [])
    clock.now += RETRY_SECONDS
    assert attempt(trouble) == attempt(trouble) == (True, None)
    assert (trouble.error, over) == (None, [True])


def test_the_others_are_taken_at_once_when_a_segment_is_damaged(trouble):
    damaged = DamagedSegment("torn")
    assert attempt(trouble, damaged) == (True, damaged)
    assert trouble.error is damaged
    assert attempt(trouble) == (True, None)


def test_an_error_of_another_kind_is_no_trouble(trouble):
    assert attempt(trouble, SchemaMismatch("odd"))[0]
    assert trouble.error is None


def test_an_error_is_logged_when_it_is_new(trouble, clock, caplog):
    caplog.set_level(logging.INFO)
    for error in (
        StorageUnavailable("segments/orders/1.arrow: lost"),
        StorageUnavailable("segments/orders/2.arrow: lost"),
        CatalogUnavailable("lost"),
        CatalogUnavailable("refused"),
        None,
        None,
        CatalogUnavailable("refused"),
    ):
        attempt(trouble, error)
        clock.now += 2 * RETRY_SECONDS

    said = [record.message.removeprefix("queue 'orders': the pool ") for record in caplog.records]
    pause = 2 * RETRY_SECONDS
    assert said == [
        "cannot take messages, and tries again: segments/orders/1.arrow: lost",
        f"cannot take messages, and tries again: lost (for {2 * pause:.0f} s)",
        f"cannot take messages, and tries again: refused (for {3 * pause:.0f} s)",
        f"takes messages again after {4 * pause:.0f} s",
        "cannot take messages, and tries again: refused",
    ]
