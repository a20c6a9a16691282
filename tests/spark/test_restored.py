"""A catalog that was restored from a backup, under the checkpoints of queries that went on."""

import shutil
import sqlite3
from contextlib import closing

from tests.factories import numbers_of, orders
from tests.spark.rig import Rig, finish


def copy(source, target):
    """Copy a catalog as a backup does, or put a copy back under those who have it open."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def arrived(rig):
    return sorted(numbers_of(rig.store.queue("copy").browse()))


def test_messages_loaded_after_a_restore_are_neither_lost_nor_deleted_unseen(rig):
    catalog, backup = rig.folder / "store" / "catalog.db", rig.folder / "backup.db"
    queue = rig.orders(30)
    stream = rig.source(maxMessagesPerTrigger=10)
    finish(rig.sink(stream, "copy"))
    copy(catalog, backup)
    queue.load(orders(60, 30))
    finish(rig.sink(stream, "copy"))
    assert arrived(rig) == list(range(90))

    copy(backup, catalog)
    queue.load(orders(100, 1000))
    finish(rig.sink(stream, "copy"))

    assert arrived(rig) == [*range(30), *range(1000, 1100)]
    (report,) = rig.view("reports").where("task = 'restore'").collect()
    assert report["from"].startswith("tickets 4 to 9 of consumer 'spark:")


def test_a_store_that_is_made_again_under_a_kept_checkpoint_loses_no_batch(rig):
    rig.orders(30)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=10), "copy"))
    again = Rig(rig.spark, rig.folder / "again")
    shutil.copytree(rig.folder / "checkpoint", again.folder / "checkpoint")

    again.orders(50)
    finish(again.sink(again.source(maxMessagesPerTrigger=10), "copy"))

    assert arrived(again) == list(range(50))
    again.store.close()
