"""Held bytes: shared by the workers, and given back by settlements."""

import pytest

from queue_core.pool.held_bytes import HeldBytes


def test_each_worker_has_an_equal_share_of_what_is_left():
    held = HeldBytes(100, lambda: 4)
    assert [held.reserve(1, pytest.fail), held.reserve(2, pytest.fail)] == [25, 50]
    # Others have taken more than their shares.
    held.add(10)
    assert held.reserve(1, pytest.fail) == 15
    assert held.used == 100


def test_a_share_is_a_byte_at_least_and_all_at_most():
    assert HeldBytes(10, lambda: 100).reserve(1, pytest.fail) == 1
    assert HeldBytes(10, lambda: 0).reserve(1, pytest.fail) == 10
    assert HeldBytes(10, lambda: 2).reserve(5, pytest.fail) == 10


def test_a_worker_holds_few_bytes_beside_its_batch():
    assert HeldBytes(1600, lambda: 2).few == 100
    assert HeldBytes(1600, lambda: 0).few == 200


def test_those_who_found_no_room_look_again_once_when_there_is_some():
    looks = []
    held = HeldBytes(10)
    held.add(30)
    assert held.reserve(1, lambda: looks.append("one")) == 0
    assert held.reserve(1, lambda: looks.append("other")) == 0
    held.give_back(20)
    assert looks == []
    held.give_back(1)
    assert sorted(looks) == ["one", "other"]
    assert held.reserve(1, pytest.fail) == 1
    held.give_back(10)
    assert len(looks) == 2
