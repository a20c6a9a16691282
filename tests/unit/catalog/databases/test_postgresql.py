"""The driver of PostgreSQL is one that works."""

import threading
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from packaging.requirements import Requirement

from queue_core.catalog.databases.bounded_waits import OLDEST_PSYCOPG
from queue_core.catalog.databases.ear import Ear
from queue_core.catalog.databases.postgresql import PostgresListener
from queue_core.catalog.dialect import connect
from queue_core.errors import BadOption

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_the_oldest_driver_is_the_declared_one():
    (declared,) = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["postgres"]
    requirement = Requirement(declared)

    assert requirement.specifier.contains(".".join(map(str, OLDEST_PSYCOPG)))
    assert not requirement.specifier.contains("3.2.10")


@pytest.mark.parametrize("version", ["3.1.20", "3.2.10"])
def test_an_older_driver_is_refused_by_name(monkeypatch, version):
    monkeypatch.setattr(psycopg, "__version__", version)

    with pytest.raises(BadOption, match=rf"needs psycopg 3\.2\.11 or later, and this is {version}"):
        connect("postgresql+psycopg://nobody@127.0.0.1:1/none")


LONG = 30.0


class Driver:
    """A connection to PostgreSQL, and the payloads that have arrived."""

    def __init__(self, *arrived):
        self.arrived = list(arrived)
        self.executed = []
        self.autocommit = False
        self.error = None
        self._changed = threading.Condition()

    def execute(self, statement):
        self.executed.append(statement)

    def send(self, payload):
        with self._changed:
            self.arrived.append(payload)
            self._changed.notify()

    def notifies(self, *, timeout, stop_after=None):
        with self._changed:
            self._changed.wait_for(lambda: self.arrived or self.error, timeout)
            if self.error is not None:
                raise self.error
            heard = self.arrived[:stop_after]
            del self.arrived[: len(heard)]
        yield from (SimpleNamespace(payload=payload) for payload in heard)

    def close(self):
        self.executed.append("close")


def listening(driver, ear=None, queue_ids=lambda: None):
    return PostgresListener(ear or Ear(), lambda: driver, queue_ids)


def test_several_notifications_are_heard_as_one():
    driver = Driver("1", "", "2")
    listener = listening(driver)

    assert listener.wait(LONG)
    assert not listener.wait(0.0)
    listener.close()

    assert driver.autocommit
    assert driver.executed == ["LISTEN ignis", "close"]


def test_only_notifications_of_its_own_queues_are_heard():
    driver = Driver("2 3", "12")
    listener = listening(driver, queue_ids=lambda: (1, 4))

    assert not listener.wait(0.01)
    driver.send("5 4")
    assert listener.wait(LONG)
    driver.send("")
    assert listener.wait(LONG)


def test_what_one_thread_reads_all_hear():
    driver, ear = Driver(), Ear()
    listeners = [listening(driver, ear, lambda number=number: (number,)) for number in range(8)]
    heard = []
    threads = [
        threading.Thread(target=lambda at=at: heard.append(listeners[at].wait(LONG)))
        for at in range(8)
    ]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for number in range(8):
        driver.send(str(number))
    for thread in threads:
        thread.join(LONG)

    assert heard == [True] * 8
    assert time.monotonic() - start < LONG / 2, "one has slept until its time was up"
    for listener in listeners:
        listener.close()
    assert driver.executed == ["LISTEN ignis", "close"]


def test_what_is_heard_while_it_does_not_wait_is_not_lost():
    driver, ear = Driver(), Ear()
    busy, other = listening(driver, ear, lambda: (1,)), listening(driver, ear, lambda: (2,))

    driver.send("1")
    assert not other.wait(0.0)
    assert busy.wait(0.0)
    assert not busy.wait(0.0)


def test_another_thread_reads_once_the_first_has_left():
    driver, ear = Driver(), Ear()
    listener, other = listening(driver, ear), listening(driver, ear, lambda: (2,))
    first = threading.Thread(target=other.wait, args=(0.1,))
    first.start()
    time.sleep(0.02)
    threading.Timer(0.2, driver.send, ("1",)).start()

    assert listener.wait(LONG)
    first.join(LONG)


def test_a_lost_connection_is_an_error_for_all():
    driver, ear = Driver(), Ear()
    listener, other = listening(driver, ear), listening(driver, ear)
    driver.error = ConnectionError("cut")

    for each in (listener, other):
        with pytest.raises(ConnectionError, match="cut"):
            each.wait(LONG)
    assert ear.lost


def test_a_connection_that_cannot_listen_is_closed():
    closed = []

    def execute(statement):
        raise ConnectionError(statement)

    with pytest.raises(ConnectionError, match="LISTEN ignis"):
        listening(SimpleNamespace(execute=execute, close=lambda: closed.append(True)))

    assert closed == [True]
