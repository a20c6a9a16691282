"""A batch waits for enough messages, and not for ever."""

import pytest

from ignis_source import firing
from ignis_source.firing import Linger
from tests.clocks import Stopwatch


@pytest.fixture
def clock(monkeypatch):
    return Stopwatch(monkeypatch, firing)


def test_enough_messages_end_it_at_once():
    linger = Linger(10, 60.0)

    assert not linger.is_over(9)
    assert linger.is_over(10)


def test_the_first_message_waits_no_longer_than_it_may(clock):
    linger = Linger(10, 60.0)

    assert not linger.is_over(0)
    clock.now += 1000
    assert not linger.is_over(1)
    clock.now += 59
    assert not linger.is_over(2)
    clock.now += 1
    assert linger.is_over(2)


def test_the_time_begins_again_with_each_batch_and_when_others_took_all(clock):
    linger = Linger(10, 60.0)

    linger.is_over(1)
    clock.now += 60
    linger.begin_again()
    assert not linger.is_over(1)
    clock.now += 30
    assert not linger.is_over(0)
    clock.now += 30
    assert not linger.is_over(1)


def test_an_unknown_number_is_no_reason_to_wait():
    assert Linger(10, 60.0).is_over(None)
