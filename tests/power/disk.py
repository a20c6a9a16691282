"""A disk whose power may fail: what it holds for certain, and what may be missing, whole or torn.

The model is what POSIX promises, and what SQLite and ignis count on, and no more: a sync of a file
keeps its content, and a sync of a folder keeps the names in it. What was not synced may be there or
not, in any combination, and of a write some sectors. A sector is never half written.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.power.recording import Operation

SECTOR = 512
#: The files and the folders of a disk after a failure; None for a folder.
Image = dict[str, bytes | None]


@dataclass
class _File:
    #: What is certain, and what is not.
    kept: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)


@dataclass
class Disk:
    """What a recorded process has made of a folder so far."""

    root: str
    #: Which file each name means: for the process, and for certain. None for a folder.
    names: dict[str, _File | None] = field(default_factory=dict)
    kept: dict[str, _File | None] = field(default_factory=dict)
    #: Changes of names that no sync of their folder has followed.
    pending: list[tuple[Operation, _File | None]] = field(default_factory=list)

    def apply(self, operation: Operation) -> None:
        """Do what the process did."""
        kind, path = operation.kind, operation.path
        if kind in ("write", "truncate"):
            file = self._file(path)
            file.pending.append(operation)
        elif kind == "sync":
            self._sync(path)
        else:
            file = _File() if kind == "create" else None
            change = (operation, file if kind == "create" else self.names.get(path))
            _rename(self.names, *change)
            self.pending.append(change)

    def after(self, chance: random.Random) -> Image:
        """A disk after a failure now: of all that is not certain, any part may be there."""
        kind = chance.choice(("none", "all", "some", "some", "first", "but one"))
        names = dict(self.kept)
        for change in _chosen(self.pending, kind, chance):
            _rename(names, *change)
        torn = chance.random() < 0.5
        content = {
            id(file): _content(file, chance.choice((kind, "some")), chance, torn)
            for file in names.values()
            if file is not None
        }
        image: Image = {}
        for path in sorted(names):
            file = names[path]
            # What is in a folder that is not there is not there either.
            if os.path.dirname(path) in {self.root, *image}:
                image[path] = None if file is None else content[id(file)]
        return image

    def _file(self, path: str) -> _File:
        file = self.names.get(path)
        assert file is not None, f"{path} was written before it was made"
        return file

    def _sync(self, path: str) -> None:
        file = self.names.get(path)
        if file is not None:
            for operation in file.pending:
                _write(file.kept, operation)
            file.pending.clear()
            return
        kept, left = [], []
        for change in self.pending:
            (kept if path in _folders(change[0]) else left).append(change)
        for change in kept:
            _rename(self.kept, *change)
        self.pending = left


def failures(
    operations: Iterable[Operation], root: str, chance: random.Random, each: int, marks: str
) -> Iterator[tuple[Image, bytes]]:
    """Yield disks after failures, *each* after every operation, and what had been said by then."""
    disk, said = Disk(root), bytearray()
    for operation in operations:
        if operation.path == marks:
            if operation.kind == "write":
                said += operation.data
            continue
        disk.apply(operation)
        for _ in range(each):
            yield disk.after(chance), bytes(said)


def fingerprint(image: Image, said: bytes) -> bytes:
    """A hash of a disk and of what had been said."""
    digest = hashlib.blake2b(said, digest_size=16)
    for path, content in image.items():
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.digest()


def write(image: Image, root: str, folder: Path) -> None:
    """Make the files of a disk below another folder."""
    for path, content in image.items():
        at = folder / os.path.relpath(path, root)
        if content is None:
            at.mkdir(parents=True, exist_ok=True)
        else:
            at.write_bytes(content)


def _folders(operation: Operation) -> set[str]:
    return {os.path.dirname(path) for path in (operation.path, operation.to) if path}


def _rename(names: dict[str, _File | None], operation: Operation, file: _File | None) -> None:
    if operation.kind in ("create", "mkdir"):
        names.setdefault(operation.path, file)
    elif operation.kind in ("unlink", "rmdir"):
        names.pop(operation.path, None)
    elif file is not None:
        # Of a file that is renamed, one name is there at any time, and never none.
        names.pop(operation.path, None)
        names[operation.to] = file


def _chosen(pending: list, kind: str, chance: random.Random) -> list:  # type: ignore[type-arg]
    if kind == "none" or not pending:
        return []
    if kind == "all":
        return pending
    if kind == "first":
        return pending[: chance.randrange(len(pending) + 1)]
    if kind == "but one":
        left_out = chance.randrange(len(pending))
        return [*pending[:left_out], *pending[left_out + 1 :]]
    return [change for change in pending if chance.random() < 0.5]


def _content(file: _File, kind: str, chance: random.Random, torn: bool) -> bytes:
    content = bytearray(file.kept)
    chosen = _chosen(file.pending, kind, chance)
    for operation in chosen:
        if torn and operation.kind == "write" and chance.random() < 0.2:
            for part in _sectors(operation):
                if chance.random() < 0.5:
                    _write(content, part)
        else:
            _write(content, operation)
    return bytes(content)


def _sectors(operation: Operation) -> Iterator[Operation]:
    begin, end = operation.offset, operation.offset + len(operation.data)
    while begin < end:
        stop = min(end, (begin // SECTOR + 1) * SECTOR)
        at = begin - operation.offset
        yield Operation("write", operation.path, begin, operation.data[at : at + stop - begin])
        begin = stop


def _write(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        content.extend(bytes(operation.offset - len(content)))
        return
    missing = operation.offset - len(content)
    if missing > 0:
        # A part of a file that was never written reads as zeros.
        content.extend(bytes(missing))
    content[operation.offset : operation.offset + len(operation.data)] = operation.data
