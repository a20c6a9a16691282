"""A catalog that was restored from a backup, under the checkpoints of queries that went on."""

import shutil
import time

import pytest
from typer.testing import CliRunner

from ignis_cli.app import app
from pyspark_ignis import consume
from tests.factories import ORDERS, make_queue, orders
from tests.spark.rig import AVAILABLE_NOW, Rig, assert_rows, counts, finish, wait_until
from tests.storages import copy_catalog


def by_the_database(rig):
    """Keep a copy of the catalog, and return what puts it back."""
    catalog, backup = rig.folder / "store" / "catalog.db", rig.folder / "backup.db"
    copy_catalog(catalog, backup)
    # While processes have it open.
    return lambda: copy_catalog(backup, catalog)


def by_ignis(rig):
    """Write a backup, and return what restores it over the store."""

    def ignis(*words):
        result = CliRunner().invoke(app, ["--path", rig.path, *words])
        assert result.exit_code == 0, result.output

    backup = str(rig.folder / "backup")
    ignis("backup", backup)
    return lambda: ignis("restore", backup, "--over")


@pytest.mark.parametrize(
    ("back_up", "named"),
    [
        pytest.param(by_the_database, ["tickets 3 to 4"], marks=pytest.mark.nightly),
        (by_ignis, ["batches 2 to 3", "tickets 3 to 4"]),
    ],
)
def test_messages_loaded_after_a_restore_are_neither_lost_nor_deleted_unseen(rig, back_up, named):
    queue = rig.orders(20)
    stream = rig.source(maxMessagesPerTrigger=10)
    finish(rig.sink(stream, "copy"))
    restore = back_up(rig)
    queue.load(orders(20, 20))
    finish(rig.sink(stream, "copy"))
    assert rig.arrived() == list(range(40))

    restore()
    queue.load(orders(30, 1000))
    finish(rig.sink(stream, "copy"))

    assert rig.arrived() == [*range(20), *range(1000, 1030)]
    lost = rig.view("reports").where("task = 'restore'")
    assert_rows(lost.selectExpr("substring_index(`from`, ' of ', 1) AS ticket"), *named)


def test_a_store_that_is_made_again_under_a_kept_checkpoint_loses_no_batch(rig):
    rig.orders(20)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=10), "copy"))
    again = Rig(rig.spark, rig.folder / "again")
    shutil.copytree(rig.folder / "checkpoint", again.folder / "checkpoint")

    again.orders(40)
    # A later batch does not make the queue, whose settings it may not know.
    again.store.create_queue("copy", ORDERS)
    finish(again.sink(again.source(maxMessagesPerTrigger=10), "copy"))

    assert again.arrived() == list(range(40))
    again.store.close()


def test_a_batch_that_was_settled_after_the_backup_is_handled_again_at_once(rig):
    queue = rig.orders(20)
    make_queue(rig.store, "copy")
    begun, may_end = rig.folder / "begun", rig.folder / "may_end"

    def handler(message):
        begun.touch()
        while not may_end.exists():
            time.sleep(0.05)
        return {"number": message["number"]}

    def run():
        return consume(
            rig.spark, "orders", handler, path=rig.path, checkpoint=rig.folder / "checkpoint",
            output="copy", max_messages=10, trigger=AVAILABLE_NOW,
        )  # fmt: skip

    query = run()
    wait_until(begun.exists, query)
    restore = by_ignis(rig)
    may_end.touch()
    finish(query)
    restore()
    assert rig.arrived() == []

    finish(run())

    assert rig.arrived() == list(range(20))
    assert counts(queue, "in_flight") == [0]


@pytest.mark.nightly
def test_a_foreach_batch_whose_run_ended_before_the_backup_loses_nothing(rig):
    queue = rig.orders(20)
    make_queue(rig.store, "copy")

    def load(batch, number):
        rig.write(batch.select(*ORDERS.names), "copy", txnAppId="each", txnVersion=number)

    def run():
        finish(rig.each(rig.source(maxMessagesPerTrigger=10), load))

    run()
    queue.load(orders(10, 20))
    restore = by_ignis(rig)
    run()
    restore()
    assert rig.arrived() == list(range(20))

    run()

    assert rig.arrived() == list(range(30))
