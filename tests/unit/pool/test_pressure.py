"""Back-pressure: consumers are suspended while it is applied."""

from queue_core.consumers.consumer import QueueConsumer
from queue_core.pool.pressure import Pressure


def test_pressure_suspends_consumers_that_come_later_too():
    pressure = Pressure()
    one, other = (QueueConsumer(n, lambda _: None, lambda _: None) for n in "ab")
    pressure.watch(one)
    pressure.apply()
    pressure.watch(other)
    assert not one.desires_work
    assert not other.desires_work
    pressure.relieve()
    assert one.desires_work
    assert other.desires_work


def test_pressure_that_another_thread_relieves_while_it_is_passed_on_suspends_nobody():
    pressure = Pressure()

    class Slow(QueueConsumer):
        def suspend(self, reason):
            if pressure.applied:
                pressure.relieve()
            super().suspend(reason)

    consumer = Slow("a", lambda _: None, lambda _: None)
    pressure.watch(consumer)
    pressure.apply()

    assert consumer.desires_work
