"""A listener on SQLite hears the commits of other connections, and not its own."""

import sqlite3
import threading

from queue_core.databases.sqlite import SqliteListener

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
