"""A listener on SQLite hears the commits of other connections, and not its own."""

import sqlite3
import threading

from queue_core.catalog.listeners import PostgresListener, SqliteListener

LONG = 30.0


def test_a_commit_of_another_connection_is_heard_once(tmp_path):
    path = tmp_path / "catalog.db"
    listener = SqliteListener(sqlite3.connect(path, check_same_thread=False))
    assert not listener.wait(0.0)

    other = sqlite3.connect(path)
    other.execute("CREATE TABLE one (number INTEGER)")
    other.commit()
    other.close()

    assert listener.wait(0.0)
    assert not listener.wait(0.0)
    listener.close()


def test_a_commit_ends_the_wait(tmp_path):
    path = tmp_path / "catalog.db"
    listener = SqliteListener(sqlite3.connect(path, check_same_thread=False))

    def commit():
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE one (number INTEGER)")
        other.commit()
        other.close()

    thread = threading.Timer(0.05, commit)
    thread.start()

    assert listener.wait(LONG)
    thread.join()
    listener.close()


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
    listener = PostgresListener(driver, "channel")

    assert listener.wait(LONG)
    assert not listener.wait(LONG)
    listener.close()

    assert driver.autocommit
    assert driver.executed == ["LISTEN channel", "close"]
