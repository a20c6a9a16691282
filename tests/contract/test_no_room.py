"""Full disks, read-only folders and unreachable catalogs: an error, and nothing is changed."""

import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy import text

from ignis_sink.options import SinkOptions
from ignis_sink.publishing import publish
from queue_core import Store
from queue_core.errors import CatalogUnavailable, QueueDeactivated, StorageUnavailable
from queue_core.support import faults
from queue_core.values.model import Batch
from tests.books import leftover_files
from tests.dump import dump
from tests.factories import (
    load_until_full,
    make_filled,
    make_queue,
    make_stager,
    numbers_of,
    orders,
)
from tests.forks import as_nobody, in_a_fork, with_files_up_to
from tests.storages import ONLY_POSTGRESQL, ONLY_SQLITE

pytestmark = [
    pytest.mark.each_catalog,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def public():
    """A folder that every user may enter and only its owner may write."""
    folder = Path(tempfile.mkdtemp(prefix="ignis-public-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


@pytest.fixture
def filled(public):
    """A closed embedded store that all may read and only its owner may write."""
    with Store.open(public / "store") as store:
        make_queue(store).load(orders(10_000))
    return public / "store"


def forbid(path):
    """Make a path read-only for all users, including its owner, who may run the tests."""
    path.chmod(0o555 if path.is_dir() else 0o444)


def allow(*paths):
    for path in paths:
        path.chmod(0o777 if path.is_dir() else 0o666)


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- read-only ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["folder", "catalog"])
def test_a_store_that_cannot_be_written_is_refused(filled, which):
    if which == "catalog":
        allow(filled)
    forbid(filled if which == "folder" else filled / "catalog.db")
    before = content(filled)

    fault = str(filled / "catalog.db") if which == "folder" else "read-only"
    with pytest.raises(CatalogUnavailable, match=fault):
        in_a_fork(as_nobody(lambda: Store.open(filled).queue("orders").fire(1)))
    after = content(filled)
    # In a folder that may be written, there are SQLite's own files too.
    assert before.items() <= after.items()
    assert which == "catalog" or after == before


def test_a_new_store_where_no_folder_can_be_made_is_refused(public):
    forbid(public)
    with pytest.raises(CatalogUnavailable, match=f"folder {public}/new cannot be made: Permission"):
        in_a_fork(as_nobody(lambda: Store.open(public / "new")))
    assert list(public.iterdir()) == []


def test_a_store_whose_folder_may_not_be_entered_is_unavailable(filled):
    filled.chmod(0o000)
    try:
        with pytest.raises(
            CatalogUnavailable, match=f"{filled}/catalog.db cannot be reached: Permi"
        ):
            in_a_fork(as_nobody(lambda: Store.open(filled)))
    finally:
        filled.chmod(0o700)


def test_segments_that_cannot_be_written_are_not_loaded(filled):
    allow(filled, filled / "catalog.db")
    forbid(filled / "segments" / "orders")
    files = content(filled / "segments")

    def load():
        with Store.open(filled) as store:
            queue = store.queue("orders")
            before = dump(store)
            with pytest.raises(StorageUnavailable) as error:
                queue.load(orders(10_000))
            return str(error.value), dump(store) == before, len(queue.load(orders(5)))

    message, unchanged, small = in_a_fork(as_nobody(load))

    assert "segments/orders/" in message
    assert "Permission denied; nothing was changed" in message
    assert unchanged
    assert small == 5, "what is inlined needs no file"
    assert content(filled / "segments") == files


def test_other_users_cannot_read_a_store_unless_its_folder_lets_them(public):
    shared = public / "shared"
    shared.mkdir(mode=0o755)
    for folder in (public / "new", shared):
        with Store.open(folder) as store:
            make_queue(store).load(orders(10_000))

    def can_read(folder):
        return in_a_fork(as_nobody(lambda: os.access(folder / "catalog.db", os.R_OK)))

    assert stat.S_IMODE((public / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    if os.geteuid() == 0:
        assert not can_read(public / "new")
        assert can_read(shared)


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("size", [0, 100, 1_000, 20_000, 50_000])
def test_a_segment_that_grows_too_large_leaves_no_file(store, in_files, size):
    """Whichever write of a file fails, the error is ours and the file is removed."""
    queue = make_filled(store, 100)
    before = dump(store)

    def load():
        # Caught here, since the limit holds for the test's log too.
        with pytest.raises(StorageUnavailable, match="File too large; nothing was changed"):
            queue.load(orders(10_000))
        return True

    def work():
        # The files of SQLite's first connection need more room.
        queue.peek(1)
        return with_files_up_to(size, load)()

    assert in_a_fork(work)
    assert dump(store) == before
    assert numbers_of(queue.fire("all").messages) == list(range(100))


def test_a_catalog_that_grows_too_large_loses_nothing(tmp_path):
    with Store.open(tmp_path) as store:
        queue = make_filled(store, 100)

        def load_much():
            for _ in range(1000):
                queue.load(orders(300))

        with pytest.raises(CatalogUnavailable, match=r"catalog\.db .*; nothing was changed"):
            in_a_fork(with_files_up_to(300_000, load_much))
        loaded = numbers_of(queue.browse())
        assert loaded[:100] == list(range(100))
        assert len(loaded) % 300 == 100
        queue.load(orders(1))
        assert queue.browse().num_rows == len(loaded) + 1


# --- PostgreSQL away ------------------------------------------------------------------------------


def test_the_error_for_an_unreachable_server_hides_its_password(tmp_path):
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/ignis"
    start = time.monotonic()

    with pytest.raises(CatalogUnavailable) as error:
        Store.open(catalog=url, storage=str(tmp_path))

    assert "me:***@127.0.0.1:1/ignis" in str(error.value)
    assert "secret" not in str(error.value)
    assert time.monotonic() - start < 30


@pytest.mark.postgres
def test_a_database_that_does_not_exist_is_an_error(postgres, tmp_path):
    with postgres.database() as url:
        pass
    with pytest.raises(CatalogUnavailable, match="does not exist"):
        Store.open(catalog=url, storage=str(tmp_path))


def cut_off(store, url):
    """End every connection of a store, as a restarted server does."""
    with Store.open(catalog=url, storage=store.storage.uri) as other:
        other.catalog.write(
            lambda connection: connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        )


@ONLY_POSTGRESQL
def test_a_restarted_server_is_found_again(store):
    queue = make_filled(store, 5)
    cut_off(store, store.address.catalog)
    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 3, 4]


@ONLY_POSTGRESQL
def test_a_connection_lost_in_a_transaction_changes_nothing(store):
    queue = make_queue(store)
    before = dump(store)

    def work(connection):
        connection.execute(text("DELETE FROM queues"))
        cut_off(store, store.address.catalog)
        connection.execute(text("DELETE FROM queues"))

    with pytest.raises(CatalogUnavailable, match="nothing was changed"):
        store.catalog.write(work)
    assert dump(store) == before
    assert len(queue.load(orders(3))) == 3


@ONLY_POSTGRESQL
def test_a_server_that_ends_a_connection_is_unavailable_before_the_socket_is_closed(store):
    # Raised by hand, so that the driver certainly takes the connection for open.
    ending = text("DO $$ BEGIN RAISE 'shutting down' USING ERRCODE = 'admin_shutdown'; END $$")
    with pytest.raises(CatalogUnavailable, match="nothing was changed; try again later"):
        store.catalog.write(lambda connection: connection.execute(ending))


# --- refused for certain --------------------------------------------------------------------------


def refuse(store, error):
    """Let every transaction of a load fail in the middle of its work, or at its commit."""

    def fail(name):
        if name == "load.before_commit":
            raise error

    return mock.patch.object(faults, "point", fail)


@pytest.mark.parametrize("policy", [None, "latest"])
@pytest.mark.parametrize(
    "error", [QueueDeactivated("given up"), CatalogUnavailable("nothing was changed")]
)
def test_a_load_that_was_refused_for_certain_leaves_no_file(store, in_files, error, policy):
    queue = make_filled(store, 3, key="customer", policy=policy)
    before = dump(store)

    with refuse(store, error), pytest.raises(type(error)):
        queue.load(orders(100, 100))

    assert dump(store) == before


@pytest.mark.parametrize("policy", [None, "latest"])
@pytest.mark.parametrize("batch", [None, Batch("query", 1, 10)])
def test_a_write_of_spark_that_was_refused_for_certain_leaves_no_file(
    store, in_files, batch, policy
):
    queue = make_queue(store, key="customer", policy=policy)
    writer = make_stager(queue)
    writer.add(orders(10).to_batches()[0])
    staged = [segment.in_shard(0) for segment in writer.finish()]
    options = SinkOptions.of({"path": "unused", "queue": "orders"})

    with refuse(store, QueueDeactivated("given up")), pytest.raises(QueueDeactivated):
        publish(store, [queue.info], {queue.name: staged}, options, batch)

    assert leftover_files(store) == set()


@pytest.mark.parametrize("policy", [None, "latest"])
def test_the_files_of_a_load_whose_outcome_nobody_knows_are_kept(store, in_files, policy):
    queue = make_queue(store, key="customer", policy=policy)
    unknown = CatalogUnavailable("the last change may have been made")
    unknown.outcome_unknown = True

    with refuse(store, unknown), pytest.raises(CatalogUnavailable):
        queue.load(orders(10))

    assert len(leftover_files(store)) == 1


@ONLY_SQLITE  # a server has no such limit
def test_a_catalog_without_room_refuses_loads_and_leaves_no_files(store, in_files):
    """SQLite's own limit of pages is its error for a full disk."""
    queue = make_queue(store)
    with store.catalog.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar() + 4
    limit = f"PRAGMA max_page_count = {pages}"
    store.catalog.on_connect(lambda connection, _: connection.execute(limit))

    loaded, message = load_until_full(queue, 300)

    assert "full disk" in message
    assert leftover_files(store) == set()
    assert numbers_of(queue.browse()) == list(range(loaded))
