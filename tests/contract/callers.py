"""Callers with tables and transactions of their own in the database of the catalog."""

import sqlite3
from contextlib import contextmanager

import psycopg
import sqlalchemy as sa

#: How a caller may connect.
KINDS = ("sqlalchemy", "driver")

INSERT = sa.text("INSERT INTO sales VALUES (:number)")


def sell(message, connection):
    """Handle a message in the transaction of a pool: its number becomes a row."""
    connection.execute(INSERT, {"number": message["number"]})
    return True


class Seller:
    """A caller, of one of the kinds, with a table ``sales`` beside those of a store's catalog."""

    def __init__(self, store, kind="sqlalchemy"):
        self.kind = kind
        self.engine = sa.create_engine(store.catalog.engine.url)
        with self.connected() as connection:
            self.run(connection, "CREATE TABLE sales (number INTEGER UNIQUE)")
            connection.commit()

    @contextmanager
    def connected(self, **options):
        """A connection, without a transaction yet."""
        if self.kind == "sqlalchemy":
            with self.engine.connect() as connection:
                yield connection
            return
        url = self.engine.url
        if url.get_backend_name() == "sqlite":
            connection = sqlite3.connect(url.database, **options)
        else:
            plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
            # Rows of its own kind do not disturb.
            connection = psycopg.connect(plain, row_factory=psycopg.rows.dict_row)
        try:
            yield connection
        finally:
            connection.close()

    def run(self, connection, statement):
        if self.kind == "sqlalchemy":
            return connection.execute(sa.text(statement))
        return connection.execute(statement)

    def sell(self, connection, number):
        self.run(connection, f"INSERT INTO sales VALUES ({number})")

    def sold(self):
        with self.engine.connect() as connection:
            return sorted(connection.scalars(sa.text("SELECT number FROM sales")))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.engine.dispose()
