"""Cut the power after each operation of a workload, and check what the disk may hold then."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.power import disk, recording
from tests.power.workload import MARKS


@dataclass
class Found:
    """What a campaign has seen."""

    operations: int = 0
    disks: int = 0
    #: What was broken, by its text: how often, and the disk of the first.
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)


def run(folder: Path, each: int, seed: int, share: float = 1.0) -> Found:
    """
    Record the workload, and check different disks after failures, *each* after an operation.

    *share*: the part of the disks that is checked.
    """
    return trial(recording.recorded(folder), folder, each, seed, share)


def trial(
    operations: list[recording.Operation], folder: Path, each: int, seed: int, share: float
) -> Found:
    """Check disks after failures among operations that were recorded in the folder."""
    found = Found(len(operations))
    root = str(recording.root_of(folder))
    with multiprocessing.get_context("spawn").Pool(2, initializer=_begin) as pool:
        disks = _different(operations, root, each, seed, share)
        for fault in pool.imap_unordered(_check, disks, chunksize=4):
            found.disks += 1
            if fault is not None:
                text, first = fault
                count, kept = found.faults.get(text, (0, first))
                found.faults[text] = (count + 1, kept)
    return found


def _different(
    operations: list[recording.Operation], root: str, each: int, seed: int, share: float
) -> Iterator[tuple[disk.Image, bytes, str]]:
    chance = random.Random(seed)
    seen: set[bytes] = set()
    for image, said in disk.failures(operations, root, chance, each, f"{root}/{MARKS}"):
        mark = disk.fingerprint(image, said)
        if mark not in seen:
            seen.add(mark)
            if chance.random() < share:
                yield image, said, root


def _begin() -> None:
    from tests import unsynced

    # The disks that are checked need not survive anything.
    unsynced.begin()


def _check(given: tuple[disk.Image, bytes, str]) -> tuple[str, str] | None:
    from tests.power.verdict import check

    image, said, root = given
    folder = Path(tempfile.mkdtemp(prefix="ignis-power-"))
    try:
        disk.write(image, root, folder)
        check(folder, said)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        where = traceback.extract_tb(error.__traceback__)[-1].name
        text = f"{type(error).__name__} in {where}: {error}".replace(str(folder), "…")
        step = said.decode()[:-1].rpartition("\n")[2]
        return text[:600], f"after {step[:200]}\n{traceback.format_exc()[-3000:]}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None
