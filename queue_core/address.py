"""The address of a store: a catalog's URL and a storage's URI, as picklable values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from queue_core.errors import BadOption

#: Name of an embedded store's catalog file, in its folder.
CATALOG_FILE = "catalog.db"

#: ``C:\\store``, and ``dbfs:/store``.
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
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
            return Address(_catalog(catalog), _storage(storage))
        folder = _folder(str(path))
        return Address(f"sqlite:///{folder / CATALOG_FILE}", str(folder))


def _catalog(url: str) -> str:
    """Return the URL of a catalog, with the ``~`` of a SQLite file expanded."""
    prefix, home, rest = url.partition("sqlite:///~")
    return url if prefix or not home else f"sqlite:///{_folder('~' + rest, 'catalog')}"


def _storage(storage: str) -> str:
    """Return a URI as it is, and a folder with ``~`` expanded; refuse texts that name neither."""
    if "://" in storage and storage == storage.strip():
        return storage
    return str(_folder(storage, "storage")) if _is_odd(storage) else storage


def _is_odd(folder: str) -> bool:
    """Tell whether a text means another folder than the one of that very name, or none."""
    odd = folder.startswith(("~", "file:")) or folder == ":memory:" or folder != folder.strip()
    return odd or _DRIVE.match(folder) is not None or _SCHEME.match(folder) is not None


def _folder(path: str, option: str = "path") -> Path:
    """Return the absolute folder, with ``~`` expanded; refuse texts that name none."""
    shown = f"{option}={masked(path)!r}"
    if path != path.strip():
        raise BadOption(f"{shown} begins or ends with a blank; remove it")
    if path == ":memory:":
        raise BadOption(f"{shown}: a store needs a folder; for a test, take a temporary one")
    if _DRIVE.match(path) and os.name != "nt":
        raise BadOption(f"{shown} is a folder of Windows, and this is not Windows")
    if not path.startswith("file:") and "://" not in path and _SCHEME.match(path):
        scheme = path.partition(":")[0]
        hint = f"; a mounted one is /{scheme}/…" if scheme == "dbfs" else ""
        raise BadOption(f"{shown} is not a local folder, which has no '{scheme}:'{hint}")
    if "://" in path or path.startswith("file:"):
        parts = urlsplit(path)
        if parts.scheme != "file":
            uri = masked(path)
            bucket = re.sub("^s3[an]://", "s3://", uri)
            raise BadOption(
                f"path={uri!r} is not a local folder; pass catalog=postgresql+psycopg://… and "
                f"storage={bucket}"
            )
        return Path(unquote(parts.path)).absolute()
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise BadOption(f"{shown} names no home folder: {error}") from error


def masked(url: str) -> str:
    """Return a URL with its credentials hidden: ``s3://***@bucket/prefix``."""
    return masked_query(_CREDENTIALS.sub("***@", url))


def masked_query(url: str) -> str:
    """Return a URL with the secrets in its query part hidden: ``?password=***``."""
    return _SECRETS.sub(r"\1***", url)
