"""Connections that callers lend."""

import sqlite3

import pytest

from queue_core.catalog.databases.lent import LentConnection


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
