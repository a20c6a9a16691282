"""Roles of PostgreSQL with the rights of `ignis grants`: what they may and may not do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from ignis_cli.app import app
from queue_core import ConsumerPool, Retry, Store
from queue_core.catalog.holders import consumers, leases
from queue_core.catalog.records.publications import is_new_batch
from queue_core.errors import (
    CatalogForbidden,
    CatalogUnavailable,
    Conflict,
    DamagedSegment,
    QueueFull,
)
from queue_core.segments import stager
from queue_core.values.names import of_query
from queue_core.verbs.quarantine import quarantine
from tests.books import audit
from tests.clocks import jump
from tests.command_line import answer
from tests.dump import log_in_a_minute
from tests.factories import (
    load_singly,
    make_batch,
    make_filled,
    make_queue,
    make_staged,
    orders,
    planned,
    publish_once,
)
from tests.storages import Files

pytestmark = pytest.mark.postgres

OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture
def owner(postgres, tmp_path, monkeypatch):
    """The store of the role that has made it, with messages in files and in the catalog."""
    with (
        postgres.database() as url,
        Store.open(catalog=url, storage=str(tmp_path / "segments")) as store,
    ):
        queue = make_filled(store, 5, shards=2, key="number")
        monkeypatch.setattr(stager, "INLINE_BYTES", 0)
        queue.load(orders(10, 5))
        yield store
        audit(store)


@pytest.fixture
def as_role(postgres, owner):
    """Open the store as a new role with the rights of a kind of role."""
    engine = sa.create_engine(owner.catalog.url, poolclass=sa.NullPool)
    opened, roles = [], []

    def run(*statements):
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def make(kind):
        role = postgres.role(owner.catalog.url)
        url = role.__enter__()
        name = sa.make_url(url).username
        roles.append((role, name))
        printed = CliRunner().invoke(app, ["grants", "--role", kind, name])
        assert printed.exit_code == 0, printed.output
        run(*printed.stdout.splitlines())
        opened.append(Store.open(catalog=url, storage=owner.address.storage, create=False))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
    for role, name in roles:
        run(f"DROP OWNED BY {name}")
        role.__exit__(None, None, None)


def refused(*calls):
    for call in calls:
        with pytest.raises(
            CatalogForbidden, match=r"\((permission denied|must be owner).*nothing was changed"
        ):
            call()


def publish(queue, number):
    segments = make_staged(queue, orders(10, 100))
    batch = make_batch(segments, number)
    return publish_once(queue.store.catalog, queue.store.storage, queue.info, segments, batch)


def test_a_producer_loads_and_sees_and_takes_nothing(owner, as_role, monkeypatch, tmp_path):
    make_queue(owner, "bounded", max_size=5, max_bytes=100_000, overflow="fail")
    producer = as_role("producer")
    queue = producer.queue("orders")
    queue.load(orders(5, 20))
    monkeypatch.setattr(stager, "INLINE_BYTES", 1 << 20)
    queue.load(orders(5, 30))
    assert publish(queue, 0)
    assert not publish(queue, 0)
    producer.queue("bounded").load(orders(5))
    with pytest.raises(QueueFull):
        producer.queue("bounded").load(orders(5))

    # For the shovel.
    bounded = owner.queue("bounded")
    bounded.sideline(bounded.fire(max_messages=1))
    waiting = owner.queue("orders").browse()
    firing = owner.queue("orders").fire(max_messages=1)
    refused(
        queue.fire,
        queue.peek,
        queue.browse,
        queue.failures,
        lambda: queue.delete(firing.ids),
        lambda: queue.sideline(firing.ids),
        producer.queue("bounded").shovel,
        queue.sweep,
        queue.admin.deactivate,
        lambda: queue.admin.change_settings(sweep_after=1.0),
        lambda: make_queue(producer, "own"),
        lambda: producer.admin.vacuum(grace=0),
        lambda: producer.consumer("mine"),
        producer.admin.accept_clock,
        lambda: producer.admin.backup(tmp_path / "backup"),
        lambda: read(producer, "SELECT host FROM clocks"),
        lambda: producer.view("slices"),
        lambda: read(producer, "SELECT data FROM segments"),
        lambda: change(producer, "DELETE FROM slices"),
        lambda: change(producer, "UPDATE slices SET state = 0"),
        lambda: change(producer, "DELETE FROM files"),
        lambda: change(producer, "UPDATE facts SET value = ''"),
    )
    assert waiting.num_rows == 35
    assert owner.queue("orders").browse().num_rows == 35


def test_a_producer_loads_where_firings_make_room(owner, as_role):
    roomy = make_queue(owner, "roomy", max_size=5, room="on_fire", overflow="fail")
    producer = as_role("producer").queue("roomy")
    producer.load(orders(5))
    with pytest.raises(QueueFull):
        producer.load(orders(1))
    roomy.fire(max_messages=2)
    producer.load(orders(2, 5))
    roomy.get_and_keep(max_messages=1)
    with pytest.raises(QueueFull):
        producer.load(orders(1))


def test_a_producer_writes_the_batches_of_a_query_that_reads_the_same_store(owner, as_role):
    name = of_query("line")
    reader = owner.catalog.write(lambda c: consumers.enlist(c, name, beats=True, ack="onCommit"))
    planned(owner, owner.queue("orders"), reader, 1)
    queue = as_role("producer").queue("orders")

    def is_new(number):
        read = json.dumps({"consumer": name, "ticket": number + 1})
        batch = make_batch((), number, tickets=read)
        return queue.store.catalog.write(lambda c: is_new_batch(c, queue.info, batch))

    assert is_new(0)
    assert not is_new(0)
    with pytest.raises(Conflict, match="does not know this ticket"):
        is_new(1)


def test_a_producer_is_refused_at_a_rendezvous_before_it_loads(owner, as_role):
    meeting = make_queue(owner, "meeting", max_size=0)
    queue = as_role("producer").queue("meeting")
    refused(lambda: queue.load(orders(1), timeout=5.0), lambda: publish(queue, 0))
    assert meeting.browse().num_rows == 0


def test_a_producer_loads_a_fair_queue_only_with_one_more_statement(owner, as_role):
    """Who reads `flows` sees which values of `fair_by` load how much."""
    fair = make_queue(owner, "fair", shards=2, fair_by="customer", max_size=100)
    producer = as_role("producer")
    queue = producer.queue("fair")
    for loads in (lambda: queue.load(orders(5)), lambda: publish(queue, 0)):
        with pytest.raises(CatalogForbidden, match="permission denied for table flows"):
            loads()
    audit(owner)
    assert fair.browse().num_rows == 0

    (statement,) = re.findall(r"^GRANT .* ON flows TO shop_loader;$", OPERATIONS, re.MULTILINE)
    change(owner, statement.replace("shop_loader", sa.make_url(producer.catalog.url).username))
    queue.load(orders(5))
    assert publish(queue, 0)
    queue.load(orders(20, 30))
    assert len(fair.fire("all")) == 35
    refused(
        lambda: change(producer, "DELETE FROM flows"),
        lambda: change(producer, "UPDATE flows SET flow = 9"),
    )


def read(store, statement):
    with store.catalog.read() as connection:
        connection.execute(sa.text(statement)).all()


def change(store, statement):
    store.catalog.write(lambda connection: connection.execute(sa.text(statement)))


def test_a_consumer_fires_and_settles_and_neither_loads_nor_cleans(owner, as_role, tmp_path):
    consumer = as_role("consumer")
    queue = consumer.queue("orders")
    assert queue.peek(100).num_rows == queue.browse().num_rows == 15
    firing = queue.fire(max_messages=10, consumer=consumer.consumer("worker"))
    ids = firing.ids.to_pylist()
    queue.delete(ids[:4])
    queue.sideline(ids[4:8])
    queue.reload(ids[8:])
    assert queue.failures().num_rows == 4
    assert queue.shovel() == 4
    queue.fire(max_messages=3)
    assert queue.sweep(0.0, dead_after=0.0) == 3
    assert len(queue.get_and_keep(2)) == 2
    assert queue.reset() == 2
    queue.admin.expire()
    consumer.admin.recover(dead_after=0.0)
    assert consumer.view("reports").num_rows > 0
    queue.delete(queue.fire("all"))

    refused(
        lambda: queue.load(orders(1)),
        lambda: make_queue(consumer, "own"),
        queue.admin.deactivate,
        lambda: queue.admin.change_settings(sweep_after=1.0),
        lambda: consumer.admin.vacuum(grace=0),
        consumer.admin.accept_clock,
        lambda: change(consumer, "UPDATE clocks SET host = ''"),
        lambda: change(consumer, "DELETE FROM files"),
        lambda: change(consumer, "UPDATE facts SET value = ''"),
        lambda: change(consumer, "INSERT INTO schemas VALUES (1, 9, '')"),
    )
    # It may read everything, so it may also write a backup, as docs/operations.md says.
    assert consumer.admin.backup(tmp_path / "backup").rows
    # Its hold ends with it, so that vacuum goes on.
    with owner.catalog.read() as connection:
        assert not leases.backs_up(connection)


@pytest.mark.parametrize("rules", [{}, {"dedup": ("number",)}])
def test_a_pool_of_a_role_that_may_not_load_ends_and_gives_its_messages_back(owner, as_role, rules):
    """No message is at fault, so none fails, whatever the handler returns."""
    owner.create_queue("results", owner.queue("orders").schema, **rules)
    calls = []

    def handle(message):
        calls.append(message["number"])
        return {name: message[name] for name in owner.queue("orders").schema.names}

    how = {"output": "results", "batch": 5, "concurrency": 2, "retry": Retry(attempts=3)}
    pool = ConsumerPool(as_role("consumer"), "orders", handle, **how)
    pool.start()
    for ends in (lambda: pool.drain(30), pool.stop):
        with pytest.raises(CatalogForbidden, match="permission denied"):
            ends()
    assert 0 < len(calls) == len(set(calls))
    (figures,) = owner.view("queues", "orders").to_pylist()
    assert (figures["waiting"], figures["in_flight"], figures["sidelined"]) == (15, 0, 0)
    assert set(owner.view("slices")["attempts"].to_pylist()) == {0}


def test_a_consumer_records_a_jump_of_the_clock_and_only_an_operator_accepts_it(owner, as_role):
    owner.queue("orders").admin.change_settings(message_expiry=2 * 24 * 3600.0)
    consumer, operator = as_role("consumer"), as_role("operator")
    queue = consumer.queue("orders")
    assert queue.admin.expire() == 0
    jump(owner, 3)
    with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
        queue.admin.expire()
    refused(consumer.admin.accept_clock)
    with pytest.raises(CatalogUnavailable, match="advanced 3 days more"):
        queue.admin.expire()

    operator.admin.accept_clock()

    assert queue.admin.expire() == 15


def test_a_consumer_expires_messages_also_of_a_queue_whose_own_time_is_over(owner, as_role, caplog):
    owner.queue("orders").admin.change_settings(queue_expiry=0.001, message_expiry=0.001)

    assert as_role("consumer").queue("orders").admin.expire() == 15
    assert owner.queue("orders").info.deactivated_at is None
    assert "only the owner of the catalog or an operator may deactivate" in caplog.text


def test_an_operator_does_everything(owner, as_role, tmp_path):
    operator = as_role("operator")
    queue = make_filled(operator, 10, "own", policy=None)
    queue.sideline(queue.fire(max_messages=5))
    queue.admin.change_settings(sweep_after=60.0)
    queue.shovel()
    queue.admin.compact()
    queue.delete(queue.fire("all"))
    queue.admin.deactivate()
    operator.admin.accept_clock()
    assert operator.admin.vacuum(grace=0)
    operator.admin.backup(tmp_path / "backup")
    operator.queue("orders").delete(operator.queue("orders").fire("all"))
    where = {"catalog": operator.catalog.url, "storage": operator.address.storage}
    restored = Store.restore(tmp_path / "backup", **where, over=True)

    assert restored.messages == 15
    # Tables belong to the role that has made them.
    refused(lambda: change(operator, "ALTER TABLE slices ADD COLUMN more TEXT"))


def test_names_are_quoted():
    printed = CliRunner().invoke(app, ["grants", "--role", "producer", 'x"; DROP TABLE slices; --'])

    assert all(
        line.endswith(' TO "x""; DROP TABLE slices; --";') for line in printed.stdout.splitlines()
    )


def test_the_statements_are_printed_as_json_too():
    plain = CliRunner().invoke(app, ["grants", "--role", "consumer", "till"])
    (found,) = answer(CliRunner().invoke(app, ["--json", "grants", "--role", "consumer", "till"]))

    assert found["statements"] == plain.stdout.splitlines()
    assert (found["role"], found["kind"]) == ("till", "consumer")


@pytest.mark.parametrize(
    ("role", "name"), [("prodcer", "x"), ("producer", ""), ("producer", "x" * 64)]
)
def test_a_malformed_role_is_refused(role, name):
    printed = CliRunner().invoke(app, ["grants", "--role", role, name])

    assert printed.exit_code == 2
    assert "use" in printed.stderr


def test_a_producer_writes_a_log_and_a_consumer_reads_and_trims_it(owner, as_role, caplog):
    topic = make_queue(owner, "topic", log="0s")
    owner.subscribe("reader", to="topic")
    producer, consumer = as_role("producer"), as_role("consumer")
    # Of a queue that has a log since the producer has read it, too.
    late = producer.queue("orders")
    owner.queue("orders").admin.change_settings(log="7 days")
    late.load(orders(1, 15))
    load_singly(producer.queue("topic"), 5)
    log_in_a_minute(owner)
    assert topic.admin.compact() == 5
    reader = consumer.queue("reader")
    reader.delete(reader.fire(2))
    assert reader.delete(reader.fire("all", selector="number > 2")) == 2
    reader.delete(reader.fire("all"))

    assert consumer.queue("topic").admin.trim() == 5
    assert topic.browse().num_rows == 5
    # A snapshot is removed by an operator's process.
    kept = owner.queue("reader").admin
    kept.snapshot("kept", keep=0)
    for trims, left in ((consumer.queue("topic"), 1), (topic, 0)):
        trims.admin.trim()
        assert kept.snapshots().num_rows == left
    assert "kept for snapshots whose time is over" in caplog.text


def test_a_consumer_reads_by_a_selector_and_only_detaches_late_readers(owner, as_role, caplog):
    topic = make_queue(owner, "topic", log="0s")
    owner.subscribe("some", to="topic", selector="number > 2")
    owner.subscribe("late", to="topic", late="0.001s")
    topic.load(orders(5))
    consumer = as_role("consumer")
    reader = consumer.queue("some")
    assert reader.delete(reader.fire("all")) == 2

    assert consumer.queue("topic").admin.trim() == 5
    assert owner.queue("late").info.detached_at
    assert not caplog.text

    owner.subscribe("ending", to="topic", late="0.001s", when_late="drop")
    topic.load(orders(5))
    reader.delete(reader.fire("all"))
    assert consumer.queue("topic").admin.trim() == 0
    assert "'ending', which is too late" in caplog.text
    assert topic.admin.trim() == 5


def test_a_reader_sees_everything_and_changes_nothing(owner, as_role):
    topic = make_queue(owner, "topic", log="7 days")
    owner.subscribe("reader", to="topic")
    topic.load(orders(5))
    reader = as_role("reader")
    assert reader.queue("topic").browse().num_rows == reader.queue("topic").peek(5).num_rows == 5
    assert reader.view("logs").num_rows == topic.info.shards
    for name in ("subscriptions", "retained", "queues"):
        assert reader.view(name).to_pylist() != []
    queue = reader.queue("topic")
    refused(
        lambda: queue.load(orders(1)),
        lambda: queue.fire(1),
        queue.admin.trim,
        queue.sweep,
        reader.queue("reader").browse,
    )


def test_a_reader_tells_of_damage_and_leaves_its_quarantine_to_others(owner, as_role):
    queue = as_role("reader").queue("orders")
    location = min(owner.storage.list())
    file = Files(owner.storage.uri).file(location)
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(DamagedSegment, match="is missing"):
        queue.browse()
    file.write_bytes(data)

    assert quarantine(queue.store.catalog, queue.store.storage) == 0
    assert location in owner.storage.damage_reports()
    assert queue.browse().num_rows == 15
