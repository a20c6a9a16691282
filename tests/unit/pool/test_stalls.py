"""Stalls: who waits for a settlement is called once after it."""

from queue_core.pool.stalls import Stalls


def test_each_that_waits_is_called_once():
    calls = []
    stalls = Stalls()

    def look_again():
        calls.append("look")

    stalls.end()
    stalls.add(look_again)
    stalls.add(look_again)
    stalls.end()
    stalls.end()

    assert calls == ["look"]


def test_one_that_waits_again_is_called_again():
    calls = []
    stalls = Stalls()

    def look_again():
        calls.append("look")
        if len(calls) == 1:
            stalls.add(look_again)

    stalls.add(look_again)
    stalls.end()
    assert calls == ["look"]
    stalls.end()
    assert calls == ["look", "look"]
