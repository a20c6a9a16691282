"""After a takeover, no id is assigned again that a lost transaction may have assigned."""

from functools import partial

import pytest
import sqlalchemy as sa

from queue_core import ConsumerPool, Store
from queue_core.catalog.databases.takeovers import JUMP
from queue_core.catalog.records.grants import statements
from queue_core.errors import CatalogUnavailable, ConsumerFenced
from tests.books import audit
from tests.factories import drop, make_filled, make_queue, numbers_of, orders
from tests.soak.cluster import cluster
from tests.waiting import Caller, until

pytestmark = pytest.mark.postgres

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
CUT += " AND pid <> pg_backend_pid()"
AN_EARLIER_ONE = "UPDATE locks SET queue_id = queue_id + 1 WHERE starts_with(name, 'ids of')"


@pytest.fixture
def run(postgres):
    """Run statements in a database of the test, as its owner; `run.url` is its address."""
    with postgres.database() as url:
        engine = sa.create_engine(url, poolclass=sa.NullPool)

        def run(*statements):
            with engine.begin() as connection:
                for statement in statements:
                    connection.exec_driver_sql(statement)

        run.url = url
        yield run


def segment_of(message_id):
    return message_id >> 20


def again(load):
    """Load after connections were cut; the first call may find one of them."""
    try:
        return load()
    except CatalogUnavailable:
        return load()


def test_the_first_connection_to_another_timeline_raises_the_ids_once(run, tmp_path, caplog):
    with Store.open(catalog=run.url, storage=tmp_path / "files") as store:
        queue = make_queue(store)
        (first,) = queue.load(orders(1)).to_pylist()
        run(AN_EARLIER_ONE, CUT)

        (second,) = again(lambda: queue.load(orders(1, 1))).to_pylist()
        run(CUT)
        (third,) = again(lambda: queue.load(orders(1, 2))).to_pylist()

        assert segment_of(second) > segment_of(first) + JUMP
        assert segment_of(third) == segment_of(second) + 1
        assert caplog.text.count("another server has taken over the catalog") == 1
        # The rows are not those of a queue, whose locks go with it.
        for name in ("one", "two"):
            other = make_queue(store, name)
            drop(other)
        run(CUT)
        (fourth,) = again(lambda: queue.load(orders(1, 3))).to_pylist()
        assert segment_of(fourth) == segment_of(third) + 1
        # A settlement of what was lost finds nothing, and is no mistake.
        assert queue.delete([first + (5 << 20)]) == 0
        assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 3]


def test_a_role_raises_the_ids_that_it_may_use(run, postgres, tmp_path):
    with (
        Store.open(catalog=run.url, storage=tmp_path / "files") as store,
        postgres.role(run.url) as url,
    ):
        (first,) = make_queue(store).load(orders(1)).to_pylist()
        name = sa.make_url(url).username
        run(*statements("producer", name), AN_EARLIER_ONE)

        with Store.open(catalog=url, storage=tmp_path / "files", create=False) as theirs:
            (second,) = theirs.queue("orders").load(orders(1)).to_pylist()

        assert segment_of(second) > segment_of(first) + JUMP
        run(f"DROP OWNED BY {name}")


def test_the_next_life_of_a_consumer_has_not_the_epoch_of_one_that_was_lost(run, tmp_path):
    with Store.open(catalog=run.url, storage=tmp_path / "files") as store:
        queue = make_filled(store, 2)
        known, lost = store.consumer("till"), store.consumer("till")
        # The standby lacks the beginning of the second life, whose process lives on.
        run("UPDATE consumers SET epoch = epoch - 1 WHERE name = 'till'", AN_EARLIER_ONE, CUT)

        new = again(lambda: store.consumer("till"))

        assert known.epoch < lost.epoch < JUMP < new.epoch
        with pytest.raises(ConsumerFenced):
            queue.fire(consumer=lost)
        assert numbers_of(queue.fire("all", consumer=new).messages) == [0, 1]
        assert store.consumer("till").epoch > new.epoch


def test_a_session_that_only_reads_raises_nothing(run, tmp_path):
    with Store.open(catalog=run.url, storage=tmp_path / "files") as store:
        make_queue(store).load(orders(3))
        run(AN_EARLIER_ONE)
        name = sa.make_url(run.url).database
        run(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on', CUT)

        assert again(lambda: store.queue("orders").browse()).num_rows == 3


@pytest.mark.nightly
@pytest.mark.crash
@pytest.mark.parametrize("times", [1, 2])
def test_a_process_with_lost_messages_in_hand_settles_no_others(tmp_path, times):
    """
    Of an asynchronous primary, seventy loads are lost, of which a pool has some in hand.

    Two standbys that take over one after the other begin a timeline of one number.
    """
    going_on, handled = [True], []

    def handle(message):
        handled.append(message["number"])
        until(lambda: going_on, "the takeover")
        return True

    with cluster(synchronous=False) as servers:
        store = Store.open(catalog=servers.url, storage=tmp_path / "files")
        queue = make_queue(store)
        with ConsumerPool(store, "orders", handle, concurrency=1, batch=20) as pool:
            queue.load(orders(3))
            assert pool.drain(30)
            servers.known_to_all()
            for node in servers.standbys:
                node.stream_from(None)
            alone = "SELECT count(*) = 0 FROM pg_stat_wal_receiver"
            until(lambda: all(node.run(alone) for node in servers.standbys), "a primary alone")
            going_on.clear()
            lost = [queue.load(orders(1, 100 + n))[0].as_py() for n in range(70)]
            until(lambda: len(handled) > 3, "a lost message in hand")
            held = queue.fire(10)
            servers.primary.kill()
            servers.promote()
            for node in servers.standbys[1:] if times == 2 else ():
                until(lambda: _tried(partial(queue.load, orders(1, 500))), "a load")
                servers.primary.kill()
                node.promote()
                servers.primary = node
            new = []
            load = partial(queue.load, orders(80, 1000))
            until(lambda: new or new.extend(_tried(load)), "loads go on")
            assert not {*new} & {*lost}
            assert queue.delete(held) == 0
            going_on.append(True)
            until(lambda: {*range(1000, 1080)} <= {*handled}, "the pool goes on")
            assert pool.drain(30)
        audit(store)
        store.close()


@pytest.mark.nightly
@pytest.mark.crash
def test_a_commit_that_no_standby_has_confirmed_is_told(tmp_path):
    """PostgreSQL only warns if somebody cancels its wait for the standbys."""
    waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with (
        cluster(synchronous=True) as servers,
        Store.open(catalog=servers.url, storage=tmp_path / "files") as store,
    ):
        queue = make_filled(store, 1)
        servers.known_to_all()
        for node in servers.standbys:
            node.suspend()
        loading = Caller(lambda: queue.load(orders(1, 1)))
        until(lambda: servers.primary.run(f"SELECT count(*) {waits}") > 0, "no commit waits")

        def end():
            servers.primary.run(f"SELECT pg_cancel_backend(pid) {waits}")
            return not loading.is_alive()

        until(end, "the load goes on waiting")
        with pytest.raises(CatalogUnavailable, match="might not have been replicated") as raised:
            loading.done()

        assert raised.value.outcome_unknown
        for node in servers.standbys:
            node.resume()
        queue.load(orders(1, 2))
        assert numbers_of(queue.browse()) == [0, 1, 2]


def _tried(load):
    try:
        return load().to_pylist()
    except CatalogUnavailable:
        return []
