"""Where a store is: a catalog's URL and a storage's URI, plain values that can be sent around."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from queue_core.errors import BadOption

#: The catalog of an embedded store, in its folder.
CATALOG_FILE = "catalog.db"

#: A user, a password, and the @ after them. To the last @, as a password may not have been quoted.
_CREDENTIALS = re.compile(r"(?<=://)[^/?#@]*:.*@")


@dataclass(frozen=True, slots=True)
class Address:
    """A store's catalog and storage."""

    catalog: str
    storage: str

    def __repr__(self) -> str:
        return f"Address(catalog={masked(self.catalog)!r}, storage={masked(self.storage)!r})"

    @staticmethod
    def of(
        path: str | Path | None = None, *, catalog: str | None = None, storage: str | None = None
    ) -> Address:
        """
        An embedded store's folder, or a catalog and a storage.

        Raises `BadOption` unless there is exactly one of both.
        """
        if path is not None and (catalog or storage):
            raise BadOption("give either path=, or catalog= and storage=, not both")
        if path is None or not str(path):
            if not catalog or not storage:
                raise BadOption(
                    "where is the store? give path=some/folder, or both "
                    "catalog=postgresql+psycopg://… and storage=s3://bucket/prefix"
                )
            return Address(catalog, storage)
        folder = _folder(str(path))
        return Address(f"sqlite:///{folder / CATALOG_FILE}", str(folder))


def _folder(path: str) -> Path:
    if "://" in path or path.startswith("file:"):
        parts = urlsplit(path)
        if parts.scheme != "file":
            uri = masked(path)
            raise BadOption(
                f"path={uri!r} is no local folder; give catalog=postgresql+psycopg://… and "
                f"storage={uri}"
            )
        path = unquote(parts.path)
    return Path(path).absolute()


def masked(url: str) -> str:
    """Return a URL without its credentials, as it may be shown: ``s3://***@bucket/prefix``."""
    return _CREDENTIALS.sub("***@", url)
