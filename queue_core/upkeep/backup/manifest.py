"""The manifest of a backup: its files with their checksums, and its store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from queue_core.errors import DamagedBackup, FormatTooNew

#: The format of backups that this version of ignis writes.
VERSION = 1


@dataclass(frozen=True, slots=True)
class File:
    """An Arrow file of a backup."""

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup. It is written last, so a folder with a manifest is complete."""

    #: The id of the store.
    store: str
    #: The format of its catalog.
    format: int
    #: When the backup was taken: microseconds since 1970 by the catalog's clock.
    taken_at: int
    #: The subfolder with the tables.
    folder: str
    #: The file of each table.
    tables: Mapping[str, File]
    #: The highest id that each table has ever assigned.
    last_ids: Mapping[str, int]
    #: The list of the segment files in the backup; None if it has only the catalog.
    segments: File | None
    version: int = VERSION

    def to_json(self) -> str:
        """Return the manifest as text, with a checksum of its own."""
        content = asdict(self)
        return json.dumps(content | {"sha256": _digest(content)}, indent=1)

    @staticmethod
    def from_json(text: str, name: str) -> Manifest:
        """Read a manifest; raises `DamagedBackup` or `FormatTooNew`, which name the file."""
        try:
            content = json.loads(text)
            version, digest = content["version"], content.pop("sha256")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _altered(name) from error
        if isinstance(version, int) and version > VERSION:
            raise FormatTooNew(
                f"backup {name} has format {version}, and this ignis reads up to {VERSION}; "
                "upgrade ignis"
            )
        if digest != _digest(content) or content.keys() != {each.name for each in fields(Manifest)}:
            raise _altered(name)
        content["tables"] = {key: File(**value) for key, value in content["tables"].items()}
        if content["segments"] is not None:
            content["segments"] = File(**content["segments"])
        return Manifest(**content)


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _altered(name: str) -> DamagedBackup:
    return DamagedBackup(f"{name} is altered or torn; restore from another backup")
