"""A class for a database must answer every question; connections that callers lend."""

import sqlite3

import pytest

from queue_core.catalog.databases.interface import Dialect, LentConnection
from queue_core.catalog.databases.sqlite import Sqlite

QUESTIONS = sorted(Dialect.__abstractmethods__)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_class_without_an_answer_cannot_be_used(question):
    answers = {name: getattr(Sqlite, name) for name in QUESTIONS if name != question}
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
    lent = LentConnection(driver, driver.cursor)
    lent.cursor().execute("CREATE TABLE sales (number INTEGER)")
    lent.cursor().execute("INSERT INTO sales VALUES (1)")
    lent.rollback()
    lent.close()
    lent.commit()
    assert lent.in_transaction
    driver.rollback()
    assert driver.execute("SELECT * FROM sales").fetchall() == []


def test_cursors_are_made_as_said(driver):
    plain = driver.cursor()
    plain.row_factory = None
    lent = LentConnection(driver, lambda: plain)
    assert lent.cursor().execute("SELECT 1").fetchone() == (1,)
    assert lent.row_factory is sqlite3.Row
