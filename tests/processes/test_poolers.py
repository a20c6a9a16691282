"""PgBouncer between a store and its catalog: it needs sessions, and they are enough."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.ports import free_port
from queue_core import ConsumerPool, Store
from queue_core.errors import BadOption, CatalogUnavailable
from tests.factories import make_queue, numbers_of, orders
from tests.waiting import until

pytestmark = pytest.mark.skipif(
    shutil.which("pgbouncer") is None, reason="no PgBouncer (on Debian: apt install pgbouncer)"
)

SETTINGS = """
[databases]
{name} = host={host} port={port} dbname={name} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
server_round_robin = {round_robin}
default_pool_size = 20
logfile = {folder}/log
pidfile = {folder}/pid
"""


class Pooler:
    """A PgBouncer before one database, which can be started again at the same port."""

    def __init__(self, url, folder, mode, round_robin):
        address = sa.make_url(url)
        # Only the server's own user may read the folder of its socket.
        host = address.query["host"]
        self._owner = Path(host).owner()
        port = free_port()
        name, user = address.database, address.username
        self.url = f"postgresql+psycopg://{user}@127.0.0.1:{port}/{name}"
        self._settings = folder / "pgbouncer.ini"
        self._settings.write_text(
            SETTINGS.format(
                name=name,
                user=user,
                host=host,
                port=address.port or 5432,
                listens=port,
                mode=mode,
                round_robin=round_robin,
                folder=folder,
            )
        )
        self._port = port
        self.start()

    def start(self):
        command = ["pgbouncer", *(["-u", self._owner] if os.geteuid() == 0 else [])]
        self._process = subprocess.Popen(
            [*command, str(self._settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._listens, "PgBouncer does not listen")

    def _listens(self):
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@contextmanager
def pooler(url, mode, round_robin=0):
    folder = Path(tempfile.mkdtemp(prefix="ignis-pooler-"))
    folder.chmod(0o777)  # the pooler has a user of its own
    running = Pooler(url, folder, mode, round_robin)
    try:
        yield running
    finally:
        running.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url(postgres):
    with postgres.database() as url:
        yield url


@pytest.mark.parametrize(
    ("mode", "round_robin"), [("transaction", 0), ("transaction", 1), ("statement", 0)]
)
def test_a_pooler_without_sessions_is_refused_before_anything_is_written(
    url, tmp_path, mode, round_robin
):
    with pooler(url, mode, round_robin) as between:
        with pytest.raises(BadOption, match="needs sessions: set pool_mode=session"):
            Store.open(catalog=between.url, storage=tmp_path / "files")
        engine = sa.create_engine(url)
        assert sa.inspect(engine).get_table_names() == []
        engine.dispose()


def test_a_store_works_through_sessions_and_the_pooler_may_be_started_again(url, tmp_path):
    with pooler(url, "session") as between:
        store = Store.open(catalog=between.url, storage=tmp_path / "files")
        queue = make_queue(store, shards=4)
        handled = []

        def handle(message):
            time.sleep(0.005)
            handled.append(message["number"])
            return True

        with ConsumerPool(store, "orders", handle, concurrency=4, batch=5):
            queue.load(orders(200))
            until(lambda: len(handled) >= 50)
            between.kill()
            with pytest.raises(CatalogUnavailable):
                queue.load(orders(1, 900))
            between.start()
            until(lambda: not queue.browse().num_rows)
        queue.load(orders(10, 200))
        assert numbers_of(queue.fire(10).messages) == list(range(200, 210))
        assert set(range(200)) <= set(handled)
        store.close()
