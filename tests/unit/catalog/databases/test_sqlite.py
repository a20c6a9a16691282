"""A listener on SQLite hears the notifications of other connections, and no other commits."""

import sqlite3
import threading

import pytest
from sqlalchemy.exc import OperationalError

from queue_core.catalog.databases.sqlite import Sqlite, SqliteListener

LONG = 30.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "catalog.db"


@pytest.fixture
def listener(path):
    opened = SqliteListener(sqlite3.connect(path, check_same_thread=False), lambda: None)
    yield opened
    opened.close()


def commit(path, statement):
    other = sqlite3.connect(path)
    other.execute(statement)
    other.commit()
    other.close()


def test_a_notification_of_another_connection_is_heard_once(path, listener):
    """Another commit is not heard."""
    assert not listener.wait(0.0)
    commit(path, "CREATE TABLE one (number INTEGER)")
    assert not listener.wait(0.0)

    commit(path, "PRAGMA user_version = 1")
    commit(path, "DROP TABLE one")
    assert listener.wait(0.0)
    assert not listener.wait(0.0)

    thread = threading.Timer(0.05, commit, (path, "PRAGMA user_version = 2"))
    thread.start()
    assert listener.wait(LONG)
    thread.join()


def test_a_connection_is_opened_by_arguments_that_others_have_used(path):
    """SQLAlchemy 2.0.4 gives the same list to all connections of an engine."""
    engine = Sqlite().connect(f"sqlite:///{path}", "", 1)
    arguments, options = [str(path)], {}

    for _ in range(2):
        for find in engine.dialect.dispatch.do_connect:
            find(engine.dialect, None, arguments, options)

    assert arguments == [f"file:{path}?mode=rw"]


def test_a_connection_waits_for_a_process_that_makes_the_same_catalog(path):
    """SQLite itself refuses at once to keep a log while another connection writes."""
    path.touch()
    maker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    made = threading.Timer(0.3, maker.execute, ("COMMIT",))
    made.start()

    with Sqlite().connect(f"sqlite:///{path}", "", 1).connect() as connection:
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()

    assert mode == "wal"
    made.join()
    maker.close()


def test_a_connection_does_not_wait_for_ever(path, monkeypatch):
    monkeypatch.setattr(Sqlite, "busy_seconds", 0.2)
    path.touch()
    maker = sqlite3.connect(path, isolation_level=None)
    maker.execute("BEGIN IMMEDIATE")

    with pytest.raises(OperationalError, match="locked"):
        Sqlite().connect(f"sqlite:///{path}", "", 1).connect()
    maker.close()
