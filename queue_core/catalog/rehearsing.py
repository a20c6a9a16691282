"""Note the statements that one engine executes, and have another one compile them, unsent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, Executable, event

#: A statement, and its parameters: one set, or a list of sets.
Executed = tuple[Executable, Any]


@contextmanager
def noted(engine: Engine) -> Iterator[list[Executed]]:
    """Yield a list, which gets each statement that the engine executes within the block."""
    executed: list[Executed] = []

    def note(_: Connection, statement: Any, several: Any, one: Any, __: Any) -> None:
        if isinstance(statement, Executable):
            executed.append((statement, several or one))

    event.listen(engine, "before_execute", note)
    try:
        yield executed
    finally:
        event.remove(engine, "before_execute", note)


class _Compiled(Exception):
    """A statement is compiled, and would be sent now."""


def compile_all(engine: Engine, executed: list[Executed]) -> None:
    """Let an engine compile statements, without sending any."""

    def stop(*_: Any) -> None:
        raise _Compiled

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", stop)
        for statement, given in executed:
            with suppress(_Compiled):
                connection.execute(statement, given)
