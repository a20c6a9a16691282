"""A client of a queue in tables of PostgreSQL; the ways to use them differ only in their SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg

from benchmarks.peers.peer import Client


class PostgresClient(Client):
    """Messages have numbers; in the statements, ``{queue}`` stands for the name of the queue."""

    #: Make the tables.
    create_sql: ClassVar[Sequence[str]]
    #: Insert bodies: an array of bytes.
    send_sql: ClassVar[str]
    #: Delete messages by their numbers, and move the failed ones.
    delete_sql: ClassVar[str]
    fail_sql: ClassVar[str]
    #: Whether each statement is a transaction.
    autocommit: ClassVar[bool]

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        self._connection = psycopg.connect(address, autocommit=self.autocommit)
        #: The numbers of the messages that were taken last.
        self._ids: list[int] = []

    def create(self) -> None:
        """Make the tables."""
        for statement in self.create_sql:
            self._run(statement)
        self._connection.commit()

    def produce(self, bodies: Sequence[bytes]) -> None:
        """Insert all rows with one statement."""
        self._run(self.send_sql, list(bodies))
        self._connection.commit()

    def acknowledge(self, failed: Sequence[int]) -> None:
        """Delete the rows, and move the failed ones to the other table."""
        lost = {self._ids[place] for place in failed}
        self._run(self.delete_sql, [each for each in self._ids if each not in lost])
        if lost:
            self._run(self.fail_sql, list(lost))
        self._connection.commit()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _taken(self, statement: str, *values: object) -> list[bytes]:
        """Return the bodies of the rows of a statement, and remember their numbers."""
        rows: list[Any] = self._run(statement, *values).fetchall()
        self._ids = [number for number, _ in rows]
        return [body for _, body in rows]

    def _run(self, statement: str, *values: object) -> psycopg.Cursor[Any]:
        # Binary values: bodies are not written out as text.
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(statement.replace("{queue}", self.queue).encode(), values or None)
