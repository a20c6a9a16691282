"""Of those who wait for SQLite's file, the first tries most often."""

import errno
import os
import signal
import sqlite3
import time
from types import SimpleNamespace

import pytest

from queue_core.catalog.databases import taking
from queue_core.catalog.databases.taking import (
    FIRST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    WritersLine,
    when_free,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def path(tmp_path):
    made = str(tmp_path / "catalog.db")
    with sqlite3.connect(made) as driver:
        driver.execute("PRAGMA journal_mode=WAL")
    driver.close()
    return made


@pytest.fixture
def opened(path):
    drivers = []

    def open_one():
        driver = sqlite3.connect(path, isolation_level=None, timeout=0)
        drivers.append(driver)
        return driver

    yield open_one
    for driver in drivers:
        driver.close()


@pytest.fixture
def pauses(monkeypatch):
    """Each pause; what is set as `then` runs in the twentieth."""

    class Pauses(list):
        then = staticmethod(lambda: None)

    noted = Pauses()

    def sleep(seconds):
        noted.append(seconds)
        if len(noted) == 20:
            noted.then()

    monkeypatch.setattr(taking, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    return noted


def test_one_is_the_first_until_it_leaves(path):
    first, second, third = WritersLine(path), WritersLine(path), WritersLine(path)
    assert first.is_first()
    assert first.is_first()
    assert not second.is_first()
    assert not third.is_first()
    first.leave()
    assert third.is_first()
    assert not second.is_first()
    second.leave()
    assert not WritersLine(path).is_first()
    third.leave()
    assert WritersLine(path).is_first()


def test_who_waits_for_the_file_of_another_folder_is_in_another_line(path, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    line, beside = WritersLine(path), WritersLine(str(other / "catalog.db"))
    assert line.is_first()
    assert beside.is_first()
    line.leave()
    beside.leave()


def test_a_process_that_is_killed_is_not_the_first_any_more(path):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, b"1" if WritersLine(path).is_first() else b"0")
        signal.pause()
    assert os.read(reading, 1) == b"1"
    line = WritersLine(path)
    assert not line.is_first()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert line.is_first()
    line.leave()


def test_a_forked_process_does_not_keep_the_line_of_its_parent(path):
    line = WritersLine(path)
    assert line.is_first()
    if (child := os.fork()) == 0:
        signal.pause()
    try:
        line.leave()
        another = WritersLine(path)
        assert another.is_first()
        another.leave()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_first_pauses_for_less_than_the_others(path, opened, pauses, is_first):
    holder, waiter = opened(), opened()
    holder.execute("BEGIN IMMEDIATE")
    pauses.then = lambda: holder.execute("COMMIT")
    ahead = WritersLine(path)
    assert ahead.is_first()
    if is_first:
        ahead.leave()
    when_free(waiter, path, "BEGIN IMMEDIATE", 30.0)
    assert waiter.in_transaction
    least, most = FIRST_PAUSE_SECONDS if is_first else PAUSE_SECONDS
    assert len(pauses) == 20
    assert all(least <= each <= most for each in pauses)
    if not is_first:
        ahead.leave()
    # It has left the line.
    behind = WritersLine(path)
    assert behind.is_first()
    behind.leave()


def test_the_next_becomes_the_first_while_it_waits(path, opened, pauses):
    holder, waiter = opened(), opened()
    holder.execute("BEGIN IMMEDIATE")
    ahead = WritersLine(path)
    assert ahead.is_first()
    pauses.then = ahead.leave
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        when_free(waiter, path, "BEGIN IMMEDIATE", 0.2)
    assert min(pauses[:20]) >= PAUSE_SECONDS[0]
    assert max(pauses[20:]) <= FIRST_PAUSE_SECONDS[1]


def test_without_such_locks_all_pause_alike(path, opened, pauses, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(taking.fcntl, "flock", refuse)
    holder, waiter = opened(), opened()
    holder.execute("BEGIN IMMEDIATE")
    pauses.then = lambda: holder.execute("COMMIT")
    when_free(waiter, path, "BEGIN IMMEDIATE", 30.0)
    assert min(pauses) >= PAUSE_SECONDS[0]


def test_another_error_is_raised_at_once(path, opened, pauses):
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="syntax"):
        when_free(opened(), path, "BEGIN AT ONCE", 30.0)
    assert not pauses
    assert time.monotonic() - began < 30.0
