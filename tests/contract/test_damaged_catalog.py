"""A catalog that is damaged, of another kind or of a later version is told of, and left alone."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.exc import OperationalError

from queue_core import ConsumerPool, Settlement, Store
from queue_core.catalog import format, holder_tables, record_tables, tables
from queue_core.catalog.identity.handle import known_store
from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.catalog.tables import facts
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    Damaged,
    DamagedCatalog,
    FormatTooNew,
    IgnisError,
    NoSuchQueue,
    NoSuchStore,
)
from queue_core.pool.dispatcher import close_dispatcher, open_dispatcher
from queue_core.values.address import Address
from queue_core.values.model import Batch
from queue_core.verbs.settle import settle
from tests.factories import make_filled, make_queue, make_staged, numbers_of, orders, publish
from tests.waiting import until

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def folder(tmp_path):
    """An embedded store with some messages, closed."""
    path = tmp_path / "store"
    with Store.open(path) as store:
        make_filled(store, 300, each=10)
    return path


def catalog_of(folder):
    return Path(folder) / "catalog.db"


def use_everything(folder):
    """Run every verb that reads; return their errors."""
    raised = []
    calls = [
        lambda queue: queue.store.queues(),
        lambda queue: queue.peek(),
        lambda queue: queue.fire(5),
        lambda queue: queue.browse(),
        lambda queue: queue.load(orders(10)),
        lambda queue: queue.metadata(),
        lambda queue: queue.store.view("queues"),
        lambda queue: queue.shovel(),
        lambda queue: queue.store.admin.vacuum(),
    ]
    for call in calls:
        try:
            with Store.open(folder) as store:
                call(store.queue("orders"))
        except IgnisError as error:
            raised.append(error)
    return raised


def cut(keep):
    return lambda data: data[: keep if keep > 1 else int(len(data) * keep)]


def overwritten(page):
    return lambda data: data[: 4096 * page] + b"\xa5" * 4096 + data[4096 * (page + 1) :]


#: What is left of the file of a catalog. With the first ones, no store can be opened.
GARBAGE = {
    "text": lambda data: b"hello",
    "zeroes": lambda data: b"\x00" * 8192,
    "noise": lambda data: bytes(range(256)) * 64,
    "only the head of one": lambda data: b"SQLite format 3\x00" + b"\xff" * 5000,
}
CUT = {f"cut to {keep}": cut(keep) for keep in (20, 100, 1000, 4096, 5000, 0.3, 0.5, 0.9)}
OVERWRITTEN = {f"page {page} overwritten": overwritten(page) for page in (1, 2, 5, 10)}


@pytest.mark.parametrize("how", GARBAGE | CUT | OVERWRITTEN)
def test_a_spoiled_catalog_gives_errors_of_ours_alone(folder, how):
    spoiled = (GARBAGE | CUT | OVERWRITTEN)[how](catalog_of(folder).read_bytes())
    catalog_of(folder).write_bytes(spoiled)

    raised = use_everything(folder)

    assert all(isinstance(error, Damaged) for error in raised)
    assert raised or how in OVERWRITTEN
    if how not in OVERWRITTEN:
        assert all(str(catalog_of(folder)) in str(error) for error in raised)
    if how in GARBAGE:
        assert {type(error) for error in raised} == {DamagedCatalog}
        assert all("restore it from a backup" in str(error) for error in raised)
        assert catalog_of(folder).read_bytes() == spoiled


def test_the_database_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()

    with pytest.raises(DamagedCatalog, match="theirs"):
        Store.open(tmp_path)

    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == [("theirs",)]


def test_a_database_that_has_a_table_of_ours_from_somebody_else_is_refused(store, address):
    store.catalog.write(lambda connection: connection.execute(text("DROP TABLE facts")))

    with pytest.raises(DamagedCatalog, match="queues"):
        Store(address)


def test_an_empty_database_file_becomes_a_store(tmp_path):
    """A process that dies while it makes a store may leave one."""
    (tmp_path / "catalog.db").touch()

    with Store.open(tmp_path) as store:
        assert store.queues() == []


@pytest.mark.parametrize("table", ["queues", "slices", "segments", "shards", "shard_locks"])
@pytest.mark.spoiled
def test_a_catalog_that_lacks_a_table_is_damaged(store, address, table):
    make_queue(store).load(orders(3))
    # PostgreSQL drops no table that a view shows.
    store.catalog.write(format.drop_views)
    store.catalog.write(lambda connection: connection.execute(text(f"DROP TABLE {table}")))

    with pytest.raises(DamagedCatalog):
        Store(address)
    with pytest.raises(DamagedCatalog):
        store.queue("orders").fire("all")


@pytest.mark.postgres
@pytest.mark.parametrize("exists", [False, True])
def test_another_search_path_is_named_as_the_reason(postgres, tmp_path, exists):
    """Nothing is damaged, and nothing needs to be restored."""
    with (
        postgres.database() as url,
        Store.open(catalog=url, storage=str(tmp_path / "files")) as store,
    ):

        def run(statement):
            with store.catalog.engine.begin() as connection:
                name = connection.scalar(text("SELECT current_database()"))
                connection.execute(text(statement.format(database=f'"{name}"')))
            store.catalog.engine.dispose()

        make_queue(store).load(orders(3))
        if exists:
            run("CREATE SCHEMA other")
        run("ALTER DATABASE {database} SET search_path = other")
        with pytest.raises(DamagedCatalog, match="search_path of its role and database; only"):
            store.queue("orders").fire("all")
        with pytest.raises(IgnisError, match="search_path"):
            Store.open(catalog=url, storage=str(tmp_path / "files"))

        run("ALTER DATABASE {database} RESET search_path")
        assert len(store.queue("orders").fire("all")) == 3


@pytest.mark.postgres
@pytest.mark.parametrize("key", [None, "customer"])
def test_a_queue_of_a_store_that_was_removed_is_none_of_the_next_store(postgres, tmp_path, key):
    """On a server, the queue with its number gets nothing of what is loaded by its handle."""
    with postgres.database() as url, Store.open(catalog=url, storage=tmp_path / "old") as store:
        queue = make_filled(store, 1, shards=3, key=key)
        with store.catalog.engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        store.catalog.engine.dispose()
        with Store.open(catalog=url, storage=tmp_path / "new") as other:
            bills = make_queue(other, "bills", shards=3, key=key)
            assert bills.info.id == queue.info.id
            with pytest.raises(NoSuchQueue, match="queue 'orders' was dropped"):
                queue.load(orders(10))
            bills.load(orders(3))
            assert bills.browse().num_rows == 3
            bills.sideline(bills.fire("all"))
            settings = bills.info.settings

            for act in (
                lambda: queue.admin.change_settings(message_expiry=1),
                queue.admin.pause,
                queue.shovel,
                queue.admin.deactivate,
            ):
                with pytest.raises(NoSuchQueue, match="queue 'orders' was dropped"):
                    act()
            assert bills.browse(magazine="sideline").num_rows == 3
            bills.opened.refresh()
            assert bills.info.settings == settings
            assert (bills.info.paused_at, bills.info.deactivated_at) == (None, None)
            bills.admin.deactivate()
            with pytest.raises(NoSuchQueue, match="queue 'orders' was dropped"):
                queue.admin.drop()
            assert other.queues() == ["bills"]


@pytest.mark.parametrize("value", ["", "one", "-1", "0", None])
def test_a_catalog_without_a_format_is_damaged(store, address, value):
    store.catalog.write(lambda connection: connection.execute(delete(facts)))
    if value is not None:
        row = insert(facts).values(name="format", value=value)
        store.catalog.write(lambda connection: connection.execute(row))

    with pytest.raises(DamagedCatalog, match="format"):
        Store(address)


def test_a_store_of_a_newer_ignis_is_refused_and_left_as_it_is(store, address):
    newer = update(facts).values(value=str(format.FORMAT + 1))
    store.catalog.write(lambda connection: connection.execute(newer))

    with pytest.raises(FormatTooNew) as error:
        Store(address)

    assert (
        f"has format {format.FORMAT + 1}, and this ignis reads formats up to {format.FORMAT}"
        in str(error.value)
    )
    assert "upgrade ignis" in str(error.value)
    with store.catalog.read() as connection:
        assert connection.scalar(text("SELECT value FROM facts")) == str(format.FORMAT + 1)


@pytest.mark.parametrize("value", range(1, format.OLDEST))
def test_a_store_of_a_format_that_was_never_released_is_refused_as_it_is(store, address, value):
    older = update(facts).where(facts.c.name == "format").values(value=str(value))
    store.catalog.write(lambda connection: connection.execute(older))

    with pytest.raises(DamagedCatalog, match=rf"has format {value}, which no release has written"):
        Store(address)

    with store.catalog.read() as connection:
        found = select(facts.c.value).where(facts.c.name == "format")
        assert connection.scalar(found) == str(value)


def test_a_store_that_is_not_there_is_not_made_unless_wanted(tmp_path):
    with pytest.raises(NoSuchStore, match=str(tmp_path / "none")):
        Store.open(tmp_path / "none", create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_database_is_no_store_unless_one_is_to_be_made(postgres, tmp_path):
    with postgres.database() as url:
        with pytest.raises(NoSuchStore):
            Store.open(catalog=url, storage=str(tmp_path), create=False)
        with Store.open(catalog=url, storage=str(tmp_path)) as store:
            assert store.queues() == []
        Store.open(catalog=url, storage=str(tmp_path), create=False).close()


def test_another_thing_in_the_place_of_catalog_or_folder_is_told_of(tmp_path):
    (tmp_path / "catalog.db").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(CatalogUnavailable, match=str(tmp_path / "catalog.db")):
        Store.open(tmp_path)
    with pytest.raises(BadOption, match=f"folder {tmp_path / 'file'} .* a file has this name"):
        Store.open(tmp_path / "file")
    with pytest.raises(BadOption, match="a part of its path is a file"):
        Store.open(tmp_path / "file" / "store")


def test_a_catalog_that_is_replaced_under_an_open_process_takes_no_more_writes(folder):
    """A person puts an older copy back while a worker of a stopped query is still there."""
    shutil.copy(folder / "catalog.db", folder / "copy")
    with Store.open(folder) as store:
        queue = store.queue("orders")
        queue.load(orders(10))
        for name in ("catalog.db-wal", "catalog.db-shm"):
            (folder / name).unlink()
        # In place: the file keeps its number.
        shutil.copyfile(folder / "copy", folder / "catalog.db")

        with pytest.raises(CatalogUnavailable, match="was replaced while this process had it open"):
            queue.load(orders(10, 10))


@pytest.mark.parametrize("create", [True, False])
def test_nothing_is_loaded_into_the_void_when_a_folder_vanishes(folder, create):
    """An open store never makes its catalog anew, and does not go on in another one."""
    with Store.open(folder, create=create) as store:
        queue = store.queue("orders")
        queue.load(orders(1))
        shutil.rmtree(folder)
        uses = (lambda: queue.load(orders(1)), lambda: queue.fire(1), store.queues)

        for use in uses:
            with pytest.raises(NoSuchStore, match="there is no ignis store"):
                use()
        assert not folder.exists()
        with Store.open(folder) as other:
            make_queue(other).load(orders(3))
            for use in uses:
                with pytest.raises(NoSuchStore, match="another one was made in its place"):
                    use()
            assert other.queue("orders").browse().num_rows == 3


def test_a_catalog_that_vanishes_alone_is_not_made_by_a_connection(folder):
    with Store.open(folder) as store:
        store.catalog.engine.dispose()
        for file in folder.glob("catalog.db*"):
            file.unlink()

        # As by a thread that has looked for the file just before.
        with (
            pytest.raises(OperationalError, match="unable to open"),
            store.catalog.engine.connect(),
        ):
            pass
        assert not (folder / "catalog.db").exists()


def test_a_sink_finds_the_store_that_was_made_in_the_place_of_its_own(folder):
    """Its process plans and commits the batches of many queries, and keeps their stores open."""
    address = Address.of(folder)
    first = known_store(address)
    assert known_store(address) is first
    shutil.rmtree(folder)
    with pytest.raises(NoSuchStore):
        known_store(address)

    with Store(address) as other:
        make_queue(other).load(orders(3))
        (found,) = known_store(address).queues(["orders"])
        assert found == other.queue("orders").info


def test_an_open_store_goes_on_in_a_copy_of_itself(folder):
    """A catalog that was put back is the same store."""
    shutil.copy(folder / "catalog.db", folder / "copy")
    with Store.open(folder) as store:
        store.queue("orders").load(orders(2))
        store.catalog.engine.dispose()
        for file in folder.glob("catalog.db*"):
            file.unlink()
        shutil.move(folder / "copy", folder / "catalog.db")

        assert store.queue("orders").browse().num_rows == 300


def test_a_pool_of_a_removed_store_ends_with_its_error(folder):
    with Store.open(folder) as store:
        pool = ConsumerPool(store, ["orders"], lambda row: True, name="charge")
        with contextlib.suppress(NoSuchStore), pool:
            # At one stroke: SQLite may be about to create a file in it.
            shutil.rmtree(folder.rename(folder.with_name("gone")))
            until(lambda: pool.error is not None)

    assert isinstance(pool.error, NoSuchStore)
    assert not folder.exists()


def test_a_pool_hears_of_its_own_store_while_that_before_it_in_its_place_is_open(folder):
    """The file of the one that was removed tells nothing."""
    with Store.open(folder) as store:
        former = open_dispatcher(store.catalog, store.queue("orders").info)
        shutil.rmtree(folder.rename(folder.with_name("gone")))
        with Store.open(folder) as other:
            dispatcher = open_dispatcher(other.catalog, make_queue(other).info)
            assert dispatcher is not former
            assert dispatcher is open_dispatcher(other.catalog, other.queue("orders").info)
            for each in (dispatcher, dispatcher, former):
                close_dispatcher(each)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("catalog", "nonsense"),
        ("catalog", "mysql://host/db"),
        ("catalog", "sqlite://"),
        ("catalog", "sqlite:///"),
        ("catalog", "sqlite:///:memory:"),
        ("catalog", "sqlite+pysqlite:////some/file.db"),
        ("catalog", "postgresql+nope://host/db"),
        ("storage", "nonsense://x"),
        ("storage", "s4://bucket"),
        ("storage", "://"),
    ],
)
def test_a_catalog_or_storage_that_cannot_be_one_is_refused(tmp_path, option, value):
    where = {"catalog": f"sqlite:///{tmp_path}/catalog.db", "storage": str(tmp_path)}

    with pytest.raises(BadOption, match=f"{option}="):
        Store.open(**where | {option: value})


@pytest.mark.parametrize(
    "name", ["with space", "größe", "a?b", "a#b", "100%41", "a&b=c", "a:b", "'"]
)
def test_a_folder_may_have_any_name(tmp_path, name):
    with Store.open(tmp_path / name) as store:
        make_queue(store).load(orders(10_000))
        assert catalog_of(tmp_path / name).exists()

    with Store.open(tmp_path / name, create=False) as store:
        assert numbers_of(store.queue("orders").fire(3).messages) == [0, 1, 2]


# --- rows that cannot be understood ---------------------------------------------------------------


def everything(store):
    """A queue with rows in every table that has values to decode."""
    queue = make_queue(store, attributes=("number",), dedup=("number",), key="customer")
    small = []
    for number in range(NEIGHBOURS):
        small += make_staged(queue, orders(1, number))
    publish(store.catalog, store.storage, queue.info, small)
    assert queue.admin.compact() == NEIGHBOURS
    queue.load(orders(5, NEIGHBOURS))
    firing = queue.fire(10)
    queue.sideline(firing.ids[:3], "declined")
    queue.delete(firing.ids[3:6])
    queue.shovel(1)
    settle(store.catalog, [queue.info], Settlement(), batch=Batch("query", 3, 2, digest=1))
    return queue


@pytest.mark.spoiled
@pytest.mark.parametrize(
    ("column", "value", "use"),
    [
        (tables.queues.c.settings, "{", lambda queue: queue.refresh()),
        (tables.queues.c.settings, '{"concurrency": -1}', lambda queue: queue.refresh()),
        (tables.queues.c.key_column, "none", lambda queue: queue.refresh()),
        (tables.schemas.c.arrow, b"\xff", lambda queue: queue.refresh()),
        (tables.slices.c.magazine, 7, lambda queue: queue.store.view("slices")),
        (tables.slices.c.state, 9, lambda queue: queue.store.view("slices")),
        (tables.slices.c.bitmap, b"\xff", lambda queue: queue.browse()),
        (tables.slices.c.stats, "[1]", lambda queue: queue.peek(selector="number > 3")),
        (tables.segments.c.id, 999, lambda queue: queue.browse()),
        (tables.segments.c.chunks, b"\xff", lambda queue: queue.browse()),
        # Its messages would be read by another schema.
        (tables.segments.c.schema_version, 9, lambda queue: queue.browse()),
        (tables.id_map.c.arrow, b"\xff", lambda queue: queue.delete([1 << 20])),
        (record_tables.failures.c.arrow, b"\xff", lambda queue: queue.failures()),
        (record_tables.task_log.c.arrow, b"\xff", lambda queue: queue.store.view("reports")),
        (
            record_tables.publications.c.content,
            "{",
            lambda queue: settle(
                queue.store.catalog, [queue.info], Settlement(), batch=Batch("query", 3, 2)
            ),
        ),
    ],
    ids=lambda value: str(value) if hasattr(value, "table") else None,
)
@pytest.mark.each_catalog(False)
def test_a_row_that_cannot_be_understood_is_named(store, column, value, use):
    queue = everything(store)
    store.catalog.write(
        lambda connection: (
            connection.execute(update(column.table).values({column: value}))
            if column is not tables.segments.c.id
            else connection.execute(delete(tables.segments))
        )
    )

    with pytest.raises(DamagedCatalog, match=rf"table {column.table} .*run `ignis fsck`"):
        use(queue)


@pytest.mark.spoiled
def test_a_schema_with_a_flipped_bit_is_named(store):
    """Most bits make it unreadable, and some make it another schema."""
    queue = make_queue(store)
    older = tables.schemas.c.version == 1
    queue.load(orders(3))
    with store.catalog.read() as connection:
        written = connection.scalar(select(tables.schemas.c.arrow))

    def spoil(at):
        data = bytearray(written)
        data[at] ^= 1 << (at % 8)
        row = update(tables.schemas).where(older).values(arrow=bytes(data))
        store.catalog.write(lambda connection: connection.execute(row))

    for at in range(0, len(written), 29):
        spoil(at)
        for use in (queue.refresh, lambda: store.view("queues")):
            with pytest.raises(DamagedCatalog, match=r"table schemas .*queue_id 1 and version 1"):
                use()
    row = update(tables.schemas).values(arrow=written)
    store.catalog.write(lambda connection: connection.execute(row))
    queue.admin.add_columns(pa.schema([("note", pa.string())]))
    spoil(len(written) // 2)
    with pytest.raises(DamagedCatalog, match=r"table schemas .*queue_id 1 and version 1"):
        queue.browse()


@pytest.mark.spoiled
def test_a_queue_without_its_schema_does_not_vanish(store):
    queue = make_queue(store)
    gone = delete(tables.schemas)
    store.catalog.write(lambda connection: connection.execute(gone))

    for use in (queue.refresh, store.queues):
        with pytest.raises(DamagedCatalog, match=r"table schemas .*missing"):
            use()


def _view(name):
    return lambda queue: queue.store.view(name)


def _backup(queue):
    queue.store.admin.backup(Path(queue.store.storage.uri).with_name("backup"))


@pytest.mark.parametrize(
    ("column", "use", "row"),
    [
        (tables.queues.c.created_at, _view("queues"), "with name 'orders'.*fsck"),
        (tables.queues.c.shards, _view("queues"), "with name 'orders'.*fsck"),
        (tables.shards.c.loaded, _view("shards"), "with queue_id 1.*fsck"),
        (tables.shard_locks.c.fired, _view("shards"), "with queue_id 1.*fsck"),
        (tables.counters.c.deleted, _view("shards"), "with queue_id 1.*fsck"),
        (tables.slices.c.position, _view("slices"), "with id .*fsck"),
        (holder_tables.consumers.c.epoch, _view("consumers"), "with id 1.*fsck"),
        (record_tables.failures.c.failed_at, _view("failures"), "with id 1.*fsck"),
        (record_tables.task_log.c.done_at, _view("reports"), "with id 1.*fsck"),
        (tables.clocks.c.host_at, lambda queue: queue.admin.expire(), ""),
        (tables.clocks.c.steady_at, lambda queue: queue.sweep(), ""),
        (tables.segments.c.bytes, lambda queue: queue.admin.compact(), ""),
        (tables.shard_locks.c.fired, lambda queue: queue.fire(), ""),
        (tables.slices.c.loaded_at, lambda queue: queue.browse(), ""),
        (tables.counters.c.deleted, _backup, "queue_id 1 and magazine 0 and shard 0"),
    ],
    ids=lambda value: str(value) if hasattr(value, "table") else None,
)
@pytest.mark.spoiled
def test_a_text_among_numbers_is_named(tmp_path, column, use, row):
    """SQLite keeps a text in a column of numbers."""
    with Store.open(tmp_path / "store") as store:
        queue = everything(store)
        change = f"UPDATE {column.table} SET {column.name} = 'abc'"
        store.catalog.write(lambda connection: connection.exec_driver_sql(change))

        with pytest.raises(DamagedCatalog, match=f"table {column.table} .*{row}"):
            use(queue)


@pytest.mark.spoiled
def test_a_text_among_the_numbers_of_a_log_is_named(tmp_path):
    with Store.open(tmp_path / "store") as store:
        make_queue(store, log="7 days").load(orders(1))
        change = "UPDATE log_slices SET logged_at = 'abc'"
        store.catalog.write(lambda connection: connection.exec_driver_sql(change))

        with pytest.raises(DamagedCatalog, match=r"table log_slices .*with queue_id 1.*fsck"):
            store.view("logs")
