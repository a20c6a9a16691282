"""Verify a backup: read each of its files, and compare it with what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from queue_core.errors import DamagedBackup
from queue_core.upkeep.backup.backup import Progress
from queue_core.upkeep.backup.folder import BackupFolder
from queue_core.upkeep.backup.manifest import Manifest


def verify(folder: BackupFolder, progress: Progress = lambda *_: None) -> tuple[int, list[str]]:
    """
    Return the number of segments in a backup, and what is wrong with the backup.

    Raises `BadOption` if the folder holds no backup, and `DamagedBackup` if its manifest cannot be
    read.
    """
    manifest = folder.manifest()
    faults: list[str] = []

    def check(compare: Callable[..., None], *file: object) -> None:
        try:
            compare(*file)
        except DamagedBackup as error:
            faults.append(str(error))

    for number, name in enumerate(manifest.tables):
        progress("tables", number, len(manifest.tables))
        check(folder.check, manifest, name)
    if faults or manifest.segments is None:
        return 0, faults
    try:
        copies = folder.segments(manifest)
    except DamagedBackup as error:
        return 0, [str(error)]
    for number, (location, (_, digest)) in enumerate(copies.items()):
        progress("segments", number, len(copies))
        check(folder.check_segment, location, digest)
    faults += [
        f"{location} is not in the backup: it was missing from the storage when it was taken"
        for location in sorted({*_named(folder, manifest)} - copies.keys())
    ]
    return len(copies), faults


def _named(folder: BackupFolder, manifest: Manifest) -> Iterator[str]:
    """Yield the files that the catalog of a backup names."""
    for batch in folder.table(manifest, "segments"):
        yield from batch.column("file").drop_null().to_pylist()
