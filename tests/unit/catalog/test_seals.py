"""Seals: each value counts, and what SQL adds is what Python computes."""

import pytest
from sqlalchemy import Boolean, Integer, LargeBinary, String, create_engine, insert, select, update

from queue_core.catalog import seals
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.tables import SEALED, counters, metadata, slices


def row_of(table):
    """A row with another value in each column."""
    return {
        column.name: f"text {number}"
        if isinstance(column.type, String)
        else bytes([number])
        if isinstance(column.type, LargeBinary)
        else bool(number % 2)
        if isinstance(column.type, Boolean)
        else number + 1
        for number, column in enumerate(table.c)
        if column.name != "seal"
    }


def covered(table):
    """The columns that a seal covers."""
    row = row_of(table)
    return {name for name in row if seals.seal(table, row) != seals.seal(table, row | {name: None})}


def test_what_users_see_is_sealed():
    left_out = {
        f"{table.name}.{name}" for table in SEALED for name in row_of(table).keys() - covered(table)
    }

    assert left_out == {
        *(f"{name}.id" for name in ("consumers", "failures", "queues", "segments")),
        *("jobs.state", "jobs.moved", "jobs.due_at", "jobs.ended_at", "jobs.error"),
        *("slices.id", "task_log.id", "publications.published_at"),
        *("acts.messages", "acts.ended_at", "acts.error"),
        *("consumers.ack", "consumers.heartbeat_at", "consumers.host", "consumers.pid"),
        *("segments.data", "segments.loaded_at", "segments.log_rows"),
        *("tickets.lives", "tickets.planned_at", "tickets.planned_epoch"),
        *("shards.version", "shard_locks.version", "counters.version"),
        *("shard_locks.head", "shard_locks.head_released"),
    }


@pytest.mark.parametrize("table", SEALED, ids=lambda table: table.name)
def test_each_bit_of_a_number_counts(table):
    row = row_of(table)
    for column in table.c:
        if column.name in covered(table) and isinstance(column.type, Integer):
            for bit in range(63):
                changed = row | {column.name: row[column.name] ^ 1 << bit}
                assert seals.seal(table, changed) != seals.seal(table, row)


def test_values_that_change_places_count():
    row = row_of(slices)
    swapped = row | {"attempts": row["deliveries"], "deliveries": row["attempts"]}
    assert seals.seal(slices, swapped) != seals.seal(slices, row)


def test_texts_that_change_places_count():
    assert seals.digest(["a", None]) != seals.digest([None, "a"])
    assert seals.digest(["ab", "c"]) != seals.digest(["a", "bc"])
    assert seals.digest([None, None]) == 0


@pytest.fixture
def database():
    with create_engine("sqlite://").connect() as connection:
        metadata.create_all(connection)
        yield connection


def renew(database, table, new):
    statement = update(table).values(**new, seal=seals.resealing(table, new))
    database.execute(statement, seals.gain(table, new))


@pytest.mark.parametrize("damaged", [False, True])
def test_an_update_keeps_a_seal_right_and_a_damage_visible(database, damaged):
    database.execute(insert(slices).values(row_of(slices)))
    if damaged:
        database.execute(update(slices).values(shard=77))
    new = {"state": 1, "ticket": None, "fired_at": 2**50 + 3, "deliveries": 4}
    renew(database, slices, new)

    row = database.execute(select(slices)).mappings().one()

    assert {name: row[name] for name in new} == new
    assert (row["seal"] == seals.seal(slices, row)) != damaged
    in_sql = database.scalar(select(seals.numbers_in_sql(slices)).select_from(slices))
    texts = [row["bitmap"], row["stats"]]
    assert in_sql + seals.digest(texts) == seals.seal(slices, row)


@pytest.mark.parametrize("table", SEALED, ids=lambda table: table.name)
def test_each_insert_seals_its_rows(database, table):
    database.execute(insert(table).values(row_of(table)))
    found = database.execute(select(table)).mappings().one()
    assert found["seal"] == seals.seal(table, found)


def test_an_insert_of_many_rows_seals_each(database):
    rows = [row_of(slices) | {"id": number} for number in range(1, 4)]
    database.execute(insert(slices), [row | {"position": row["id"]} for row in rows])
    found = database.execute(select(slices)).mappings().all()
    assert [row["seal"] for row in found] == [seals.seal(slices, row) for row in found]


@pytest.mark.parametrize("damaged", [False, True])
def test_sql_may_compute_the_new_values_of_a_table_that_grows(database, damaged):
    database.execute(insert(consumers).values(row_of(consumers)))
    if damaged:
        database.execute(update(consumers).values(epoch=77))
    epoch = consumers.c.epoch + 1
    new = seals.changing(consumers, epoch=epoch, sweepable=None, last_ticket=2**40)
    database.execute(update(consumers).values(new))

    row = database.execute(select(consumers)).mappings().one()

    assert (row["seal"] == seals.seal(consumers, row)) != damaged


@pytest.mark.parametrize("damaged", [False, True])
def test_a_change_of_a_row_keeps_a_damage_visible(database, damaged):
    database.execute(insert(consumers).values(row_of(consumers)))
    if damaged:
        database.execute(update(consumers).values(epoch=77))
    seals.change(database, consumers, consumers.c.id == 1, name="another")
    row = database.execute(select(consumers)).mappings().one()
    assert (row["seal"] == seals.seal(consumers, row)) != damaged


def test_a_seal_that_was_lost_stays_so(database):
    database.execute(insert(counters).values(row_of(counters) | {"seal": None}))
    renew(database, counters, {"sweep_pointer": 9})
    assert database.execute(select(counters.c.sweep_pointer, counters.c.seal)).one() == (9, None)
