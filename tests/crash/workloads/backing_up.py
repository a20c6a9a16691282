"""Workloads of a backup, and of a restore over the store itself."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.holder_tables import leases
from queue_core.upkeep.backup.folder import BackupFolder
from tests.children import Journal
from tests.crash.workloads.common import (
    FEW,
    Workload,
    around,
    everything_waits,
    prepared,
    the_queue,
)
from tests.factories import orders


def backs_up(store: Store, journal: Journal) -> None:
    store.admin.backup(folder_of(journal))


def folder_of(journal: Journal) -> Path:
    return journal.path.parent / "backup"


def backed_up(store: Store, journal: Journal) -> None:
    folder = BackupFolder(folder_of(journal))
    manifest = folder.manifest()
    for name in manifest.tables:
        folder.check(manifest, name)
    assert set(folder.segments(manifest)) == set(store.storage.list())
    assert len(list(folder.path.glob("catalog-*"))) == 1
    everything_waits(store, journal)
    # As after five minutes, in which the hold of the backup that died ends.
    store.catalog.write(lambda connection: connection.execute(update(leases).values(ends_at=0)))


def goes_on_after_a_backup(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    store.admin.backup(folder_of(journal))
    the_queue(store).load(orders(FEW))


def restores(store: Store, journal: Journal) -> None:
    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    Store.restore(folder_of(journal), **where, over=True)


_BACK_UP = Workload(prepare=prepared, act=backs_up, check=backed_up)
_RESTORE = Workload(prepare=goes_on_after_a_backup, act=restores, check=everything_waits)

FAULTS = {
    "backup.copied": _BACK_UP,
    "restore.copied": _RESTORE,
    **around("restore", _RESTORE),
}
