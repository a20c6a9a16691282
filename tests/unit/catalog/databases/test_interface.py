"""A class for a database must answer every question; connections that callers lend."""

import sqlite3

import pytest

from queue_core.catalog.databases.interface import Dialect, LentConnection
from queue_core.catalog.databases.sqlite import Sqlite


def test_a_class_without_an_answer_cannot_be_used():
    questions = sorted(Dialect.__abstractmethods__)
    for question in questions:
        answers = {name: getattr(Sqlite, name) for name in questions if name != question}
        partial = type("Partial", (Dialect,), answers)

        with pytest.raises(TypeError, match=question):
            partial()


@pytest.fixture
def driver(tmp_path):
    made = sqlite3.connect(tmp_path / "callers.db")
    made.row_factory = sqlite3.Row
    yield made
    made.close()


def test_only_the_caller_ends_the_transaction(driver):
    plain = driver.cursor()
    plain.row_factory = None
    lent = LentConnection(driver, lambda: plain)
    assert lent.cursor().execute("SELECT 1").fetchone() == (1,)
    assert lent.row_factory is sqlite3.Row
    lent.cursor().execute("CREATE TABLE sales (number INTEGER)")
    lent.cursor().execute("INSERT INTO sales VALUES (1)")
    lent.rollback()
    lent.close()
    lent.commit()
    assert lent.in_transaction
    driver.rollback()
    assert driver.execute("SELECT * FROM sales").fetchall() == []
