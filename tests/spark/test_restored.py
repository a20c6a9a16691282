"""A catalog that was restored from a backup, under the checkpoints of queries that went on."""

import shutil

import pytest
from typer.testing import CliRunner

from ignis_cli.app import app
from tests.factories import ORDERS, numbers_of, orders
from tests.spark.rig import Rig, assert_rows, finish
from tests.storages import copy_catalog


def arrived(rig):
    return sorted(numbers_of(rig.store.queue("copy").browse()))


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
    [(by_the_database, ["tickets 3 to 4"]), (by_ignis, ["batches 2 to 3", "tickets 3 to 4"])],
)
def test_messages_loaded_after_a_restore_are_neither_lost_nor_deleted_unseen(rig, back_up, named):
    queue = rig.orders(20)
    stream = rig.source(maxMessagesPerTrigger=10)
    finish(rig.sink(stream, "copy"))
    restore = back_up(rig)
    queue.load(orders(20, 20))
    finish(rig.sink(stream, "copy"))
    assert arrived(rig) == list(range(40))

    restore()
    queue.load(orders(30, 1000))
    finish(rig.sink(stream, "copy"))

    assert arrived(rig) == [*range(20), *range(1000, 1030)]
    lost = rig.view("reports").where("task = 'restore'")
    assert_rows(lost.selectExpr("substring_index(`from`, ' of ', 1) AS ticket"), *named)


def test_a_store_that_is_made_again_under_a_kept_checkpoint_loses_no_batch(rig):
    rig.orders(30)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=10), "copy"))
    again = Rig(rig.spark, rig.folder / "again")
    shutil.copytree(rig.folder / "checkpoint", again.folder / "checkpoint")

    again.orders(50)
    # A later batch does not make the queue, whose settings it may not know.
    again.store.create_queue("copy", ORDERS)
    finish(again.sink(again.source(maxMessagesPerTrigger=10), "copy"))

    assert arrived(again) == list(range(50))
    again.store.close()
