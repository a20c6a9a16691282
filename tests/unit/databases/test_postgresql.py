"""A listener on PostgreSQL hears several notifications as one."""

from queue_core.databases.postgresql import PostgresListener

LONG = 30.0


class Driver:
    """A connection to PostgreSQL with some notifications that have arrived."""

    def __init__(self, arrived):
        self.arrived = arrived
        self.executed = []
        self.autocommit = False

    def execute(self, statement):
        self.executed.append(statement)

    def notifies(self, *, timeout, stop_after=None):
        while self.arrived and stop_after != 0:
            self.arrived -= 1
            stop_after = None if stop_after is None else stop_after - 1
            yield object()

    def close(self):
        self.executed.append("close")


def test_several_notifications_are_heard_as_one():
    driver = Driver(arrived=3)
    listener = PostgresListener(driver, lambda: None)

    assert listener.wait(LONG)
    assert not listener.wait(LONG)
    listener.close()

    assert driver.autocommit
    assert driver.executed == ["LISTEN ignis", "close"]
