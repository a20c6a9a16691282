"""The gate of one process: which messages it admits, and the news that it has."""

from queue_core.handling.breakers.breaker import WHOLE, Breaker
from queue_core.handling.breakers.gate import Event, FirePlan, Gate

BREAKER = Breaker(of=4)


def tripped(gate, key=WHOLE):
    for _ in range(2):
        assert gate.admits(key)
        gate.note(key, 1, 1)
    return gate


def test_too_many_failures_close_the_gate_at_once():
    news = []
    gate = tripped(Gate(BREAKER, lambda: news.append(1)))

    assert not gate.admits(WHOLE)
    assert gate.firing() is None
    assert gate.events() == [Event(WHOLE, True)]
    assert news == [1]
    # Calls that were in progress change nothing.
    gate.note(WHOLE, 1, 1)
    assert gate.events() == []


def test_news_that_is_not_written_keeps_it_closed():
    gate = tripped(Gate(BREAKER))
    events = gate.events()

    assert not gate.update([], [])
    assert not gate.admits(WHOLE)
    gate.put_back(events)
    assert gate.events() == events
    gate.written(events)
    assert gate.update([], [])
    assert gate.admits(WHOLE)


def test_a_probe_admits_one_message():
    gate = Gate(BREAKER)
    gate.update([WHOLE], [])
    gate.probe(WHOLE)

    assert gate.firing() == FirePlan(WHOLE, frozenset({WHOLE}))
    assert gate.firing() is None
    assert gate.admits(WHOLE)
    assert not gate.admits(WHOLE)
    gate.note(WHOLE, 1, 0)
    assert gate.events() == [Event(WHOLE, False, False)]


def test_a_probe_that_could_not_be_called_says_nothing():
    gate = Gate(BREAKER)
    gate.update([WHOLE], [])
    gate.probe(WHOLE)

    assert gate.admits(WHOLE)
    gate.note(WHOLE, 0, 0)
    assert gate.events() == [Event(WHOLE, False, None)]


def test_a_probe_without_a_message_is_given_up_by_all_sources():
    gate = Gate(BREAKER, sources=2)
    gate.update([WHOLE], [])
    gate.probe(WHOLE)

    assert gate.firing("one").probe == WHOLE
    gate.found_nothing(WHOLE, "one")
    assert gate.firing("one") is None
    assert gate.firing("two").probe == WHOLE
    gate.found_nothing(WHOLE, "two")
    assert gate.events() == [Event(WHOLE, False, None)]
    assert gate.vacant == {WHOLE}


def test_a_probe_can_be_withdrawn_until_it_is_fired():
    gate = Gate(BREAKER)
    gate.update([WHOLE], [])
    gate.probe(WHOLE)
    assert gate.probing == [WHOLE]
    assert gate.withdraw(WHOLE)
    assert not gate.withdraw(WHOLE)


def test_each_key_has_a_gate_of_its_own():
    gate = tripped(Gate(Breaker(of=4, by="tenant")), '"a"')

    assert not gate.admits('"a"')
    assert gate.admits('"b"')
    assert gate.firing() == FirePlan(None, frozenset({'"a"'}))
    gate.update([WHOLE], [])
    assert not gate.admits('"b"')


def test_exempt_keys_never_stop():
    for exempt in (WHOLE, '"a"'):
        gate = Gate(Breaker(of=4, by="tenant"))
        gate.update([], [exempt])
        tripped(gate, '"a"')
        assert gate.admits('"a"')


def test_failures_from_before_the_pause_do_not_count_after_it():
    gate = tripped(Gate(BREAKER))
    gate.written(gate.events())
    gate.update([], [])

    gate.note(WHOLE, 1, 1)
    assert gate.admits(WHOLE)


def test_very_long_keys_never_stop():
    gate = Gate(Breaker(of=4, by="tenant"))
    tripped(gate, "x" * 301)

    assert gate.admits("x" * 301)
