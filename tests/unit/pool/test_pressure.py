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
