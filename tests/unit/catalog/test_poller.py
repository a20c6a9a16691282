"""When a waiting thread looks at the catalog, by a clock that the test moves."""

from itertools import pairwise

import pytest

from queue_core.catalog.poller import Due, Poller


class World:
    """A clock that sleeping moves, and a listener that hears the changes at given times."""

    def __init__(self, changes=()):
        self.now = 0.0
        self.changes = sorted(changes)
        self.closed = False

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def wait(self, seconds):
        end = self.now + seconds
        if self.changes and self.changes[0] <= end:
            self.now = max(self.now, self.changes[0])
            # One wake-up stands for all changes until then.
            self.changes = [time for time in self.changes if time > self.now]
            return True
        self.now = end
        return False

    def close(self):
        self.closed = True


def poller(world, *, listens=True, first=0.1, last=0.8, blind=5.0):
    return Poller(
        world if listens else None,
        first=first,
        last=last,
        blind=blind,
        clock=world.clock,
        sleep=world.sleep,
    )


def looks(world, polls, until, **found):
    """The times of the looks of one that waits until then."""
    times = []
    while polls.wait(until):
        polls.pause(until)
        times.append(world.now)
        polls.looked(**found)
        if world.now >= until:
            break
    return times


def test_a_new_poller_is_due_at_once_and_then_waits_for_a_change_or_for_long():
    world = World([3.0])
    polls = poller(world)

    assert (polls.wait(10.0), world.now) == (Due.TIME, 0.0)
    polls.looked()
    assert (polls.wait(2.0), world.now) == (None, 2.0)
    assert (polls.wait(10.0), world.now) == (Due.CHANGE, 3.0)
    polls.looked()
    assert (polls.wait(10.0), world.now) == (Due.TIME, 8.0)


def test_among_busy_others_it_looks_less_and_less_often():
    world = World(number / 100 for number in range(500))
    times = looks(world, poller(world), 4.9)
    pauses = [round(later - earlier, 6) for earlier, later in pairwise(times)]
    assert pauses[:4] == [0.2, 0.4, 0.8, 0.8]
    assert max(pauses) <= 0.81


def test_a_look_that_finds_something_new_makes_the_next_pause_short():
    world = World()
    polls = poller(world)
    for _ in range(5):
        polls.looked()
    polls.looked(new=True)

    polls.pause(0.04)
    assert world.now == 0.04
    polls.pause()
    assert world.now == 0.1


def test_after_a_quiet_time_a_change_is_looked_at_without_a_pause():
    world = World([3.0])
    polls = poller(world)
    polls.looked()
    polls.wait(10.0)
    polls.pause()
    assert world.now == 3.0


def test_what_was_found_may_not_be_all():
    world = World()
    polls = poller(world)
    polls.looked()
    polls.look_at_once()

    assert polls.wait(10.0) is Due.TIME
    polls.pause()
    assert world.now == 0.0


def test_a_change_that_a_look_at_once_sees_is_no_reason_for_another():
    world = World([1.0])
    polls = poller(world)
    world.now = 2.0
    assert polls.wait(10.0) is Due.CHANGE
    polls.looked()
    assert polls.wait(4.0) is None


def test_one_look_may_be_blind_for_another_time():
    world = World()
    polls = poller(world)
    polls.looked(blind=0.5)

    assert polls.wait(10.0) is Due.TIME
    assert world.now == 0.5
    polls.looked()
    polls.wait(10.0)
    assert world.now == 5.5


def test_an_appointment_outlasts_a_change_and_is_kept_once():
    world = World([1.0])
    polls = poller(world)
    polls.look_in(2.0)
    polls.looked()

    assert polls.wait(10.0) is Due.CHANGE
    polls.looked()
    assert (polls.wait(10.0), world.now) == (Due.APPOINTMENT, 2.0)
    polls.looked()
    assert (polls.wait(10.0), world.now) == (Due.TIME, 7.0)


def test_the_earlier_appointment_is_kept():
    world = World()
    polls = poller(world)
    polls.looked()
    polls.look_in(1.0)
    polls.look_in(3.0)

    assert (polls.wait(10.0), world.now) == (Due.APPOINTMENT, 1.0)


def test_without_a_listener_only_time_counts():
    world = World([0.5])
    polls = poller(world, listens=False, blind=1.0)
    times = looks(world, polls, 3.5)
    assert times == pytest.approx([0.0, 1.0, 2.0, 3.0])


def test_it_ends_with_its_block():
    world = World()
    with poller(world):
        pass
    assert world.closed
