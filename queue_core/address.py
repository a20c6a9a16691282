"""The address of a store: a catalog's URL and a storage's URI, as picklable values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from queue_core.errors import BadOption

#: Name of an embedded store's catalog file, in its folder.
CATALOG_FILE = "catalog.db"

#: A user, a password, and the @ after them: the last @, since a password may contain one unquoted.
_CREDENTIALS = re.compile(r"(?<=//)[^/?#@]*:.*@")
#: Parameters of the query part whose names suggest a secret.
_SECRETS = re.compile(
    r"([?&][^=&#\s]*(?:pass|pwd|secret|token|key|credential|sig)[^=&#\s]*=)[^&#\s'\"]*",
    re.IGNORECASE,
)


class Address(NamedTuple):
    """The catalog and the storage of a store."""

    catalog: str
    storage: str

    def __repr__(self) -> str:
        return f"Address(catalog={masked(self.catalog)!r}, storage={masked(self.storage)!r})"

    @staticmethod
    def of(
        path: str | Path | None = None, *, catalog: str | None = None, storage: str | None = None
    ) -> Address:
        """
        Return the address of an embedded store's folder, or of a catalog and a storage.

        Raises `BadOption` unless exactly one of these two is given.
        """
        if path is not None and (catalog or storage):
            raise BadOption("pass either path=, or catalog= and storage=, not both")
        if path is None or not str(path):
            if not catalog or not storage:
                raise BadOption(
                    "the store has no address: pass path=some/folder, or both "
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
                f"path={uri!r} is not a local folder; pass catalog=postgresql+psycopg://… and "
                f"storage={uri}"
            )
        path = unquote(parts.path)
    return Path(path).absolute()


def masked(url: str) -> str:
    """Return a URL with its credentials hidden: ``s3://***@bucket/prefix``."""
    return masked_query(_CREDENTIALS.sub("***@", url))


def masked_query(url: str) -> str:
    """Return a URL with the secrets in its query part hidden: ``?password=***``."""
    return _SECRETS.sub(r"\1***", url)
