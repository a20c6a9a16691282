"""The address of a store: a catalog's URL and a storage's URI, as picklable values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from queue_core.errors import BadOption

#: Name of an embedded store's catalog file, in its folder.
CATALOG_FILE = "catalog.db"

#: The environment variables of an address: of a path, a catalog and a storage.
VARIABLES = ("IGNIS_PATH", "IGNIS_CATALOG", "IGNIS_STORAGE")

#: ``C:\\store``, and ``dbfs:/store``.
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: ``$HOME`` and ``${HOME}``.
_VARIABLE = re.compile(r"\$\{?(?P<name>\w+)")
#: A user, a password, and the @ after them: the last @, since a password may contain one unquoted.
_CREDENTIALS = re.compile(r"(?<=//)[^/?#@]*:.*@")
#: Parameters of the query part whose names suggest a secret.
_SECRETS = re.compile(
    r"([?&][^=&#\s]*(?:pass|pwd|secret|token|key|credential|sig)[^=&#\s]*=)[^&#\s'\"]*",
    re.IGNORECASE,
)


Place = TypeVar("Place", bound=str | Path)

#: Schemes of the URIs that Arrow reads and writes, beside that of buckets.
_FILE_SYSTEMS = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def completed(
    path: Place | None, catalog: str | None, storage: Place | None
) -> tuple[Place | str | None, str | None, Place | str | None]:
    """
    Return an address, completed from the environment; an empty text counts as missing.

    For a catalog without a storage, or a storage without a catalog, only the other one is added.
    """
    path, catalog, storage = path or None, catalog or None, storage or None
    if path is not None or (catalog and storage):
        return path, catalog, storage
    there = [os.environ.get(name) or None for name in VARIABLES]
    if catalog is None and storage is None:
        return there[0], there[1], there[2]
    return None, catalog or there[1], storage or there[2]


class Address(NamedTuple):
    """The catalog and the storage of a store."""

    catalog: str
    storage: str

    @property
    def shown(self) -> str:
        """The address for a message, without its secrets."""
        if self.catalog == f"sqlite:///{Path(self.storage) / CATALOG_FILE}":
            return self.storage
        return f"catalog {masked(self.catalog)} with storage {masked(self.storage)}"

    def __repr__(self) -> str:
        return f"Address(catalog={masked(self.catalog)!r}, storage={masked(self.storage)!r})"

    @staticmethod
    def of(
        path: str | Path | None = None,
        *,
        catalog: str | None = None,
        storage: str | Path | None = None,
    ) -> Address:
        """
        Return the address of an embedded store's folder, or of a catalog and a storage.

        The environment supplies what is missing: ``IGNIS_PATH``, or ``IGNIS_CATALOG`` and
        ``IGNIS_STORAGE``. Raises `BadOption` unless exactly one of these two is given.
        """
        path, catalog, storage = completed(path, catalog, storage)
        for option, value in {"path": path, "catalog": catalog, "storage": storage}.items():
            _check_text(option, value)
        if path is not None and (catalog or storage):
            raise BadOption("pass either path=, or catalog= and storage=, not both")
        if path is None:
            if not catalog or not storage:
                raise BadOption(
                    "the store has no address: pass path=some/folder, or both "
                    "catalog=postgresql+psycopg://… and storage=s3://bucket/prefix; or set "
                    "IGNIS_PATH, or IGNIS_CATALOG and IGNIS_STORAGE"
                )
            return Address(_catalog(catalog), _storage(str(storage)))
        folder = _folder(str(path))
        return Address(f"sqlite:///{folder / CATALOG_FILE}", str(folder))


def handed_on(
    path: str | Path | None, catalog: str | None, storage: str | Path | None
) -> dict[str, str]:
    """Return options for Spark's processes, whose working folder and environment may differ."""
    path, catalog, storage = completed(path, catalog, storage)
    address = Address.of(path, catalog=catalog, storage=storage)
    # As a URI, in which a $ is no variable.
    return address._asdict() if path is None else {"path": Path(address.storage).as_uri()}


def _check_text(option: str, value: object) -> None:
    """Refuse a value that is neither a text nor a path, and one with the character NUL."""
    if value is None:
        return
    if not isinstance(value, str | os.PathLike):
        raise BadOption(f"{option}={value!r} is not a text; give the address in quotes")
    if "\0" in str(value):
        raise BadOption(f"{option}={masked(str(value))!r} has the character NUL; remove it")


def _catalog(url: str) -> str:
    """Return the URL of a catalog; the path of a SQLite file is made absolute, as by `_folder`."""
    url = _lowered(url)
    file, question, query = url.removeprefix("sqlite:///").partition("?")
    if not url.startswith("sqlite:///") or file in ("", ":memory:") or not _is_odd(file):
        return url
    return f"sqlite:///{_folder(file, 'catalog')}{question}{query}"


def _storage(storage: str) -> str:
    """Return a URI, or an absolute folder with ``~`` expanded; refuse texts that name neither."""
    storage = _lowered(storage)
    if "://" in storage and storage == storage.strip():
        return storage
    return str(_folder(storage, "storage")) if _is_odd(storage) else storage


def _lowered(address: str) -> str:
    """Return an address with its scheme in lower case: ``s3://Bucket`` for ``S3://Bucket``."""
    scheme = _SCHEME.match(address)
    return address if scheme is None else scheme[0].lower() + address[scheme.end() :]


def _is_odd(folder: str) -> bool:
    """Return whether a text is not a plain absolute path: relative, with blanks or a variable."""
    # A relative path may mean another folder later, and in other processes.
    return not folder.startswith("/") or folder != folder.strip() or "$" in folder


def _folder(path: str, option: str = "path") -> Path:
    """Return the absolute folder, with ``~`` and variables expanded; refuse other texts."""
    path = _lowered(path)
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
            raise BadOption(f"{shown} is not a local folder; {_advice(parts.scheme, masked(path))}")
        if parts.netloc not in ("", "localhost"):
            raise BadOption(
                f"{shown} names the host {parts.netloc!r}, and a folder has none; write "
                f"file:///{parts.netloc}{parts.path}, or the mounted folder"
            )
        return Path(unquote(parts.path)).absolute()
    path = os.path.expandvars(path)
    if missing := _VARIABLE.search(path):
        raise BadOption(
            f"{shown}: the environment has no variable {missing['name']!r}; set it, or for a "
            "folder with $ in its name give a URI, such as file:///data/%24name"
        )
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise BadOption(f"{shown} names no home folder: {error}") from error


def _advice(scheme: str, uri: str) -> str:
    """Return what to pass instead of a path that is the URI of something else."""
    database = scheme.partition("+")[0]
    if database == "sqlite":
        return f"pass catalog={uri} and storage=some/folder, or path= with only the folder"
    if database in ("postgresql", "postgres"):
        return "pass catalog=postgresql+psycopg://… and storage=s3://bucket/prefix"
    if scheme in ("s3", "s3a", "s3n", *_FILE_SYSTEMS):
        bucket = re.sub("^s3[an]://", "s3://", uri)
        return f"pass catalog=postgresql+psycopg://… and storage={bucket}"
    if scheme == "dbfs":
        return "a mounted one is /dbfs/…"
    reached = ", ".join(f"{each}://" for each in ("s3", *_FILE_SYSTEMS))
    return f"a storage is a folder, or one of {reached}"


def masked(url: str) -> str:
    """Return a URL with its credentials hidden: ``s3://***@bucket/prefix``."""
    return masked_query(_CREDENTIALS.sub("***@", url))


def masked_query(url: str) -> str:
    """Return a URL with the secrets in its query part hidden: ``?password=***``."""
    return _SECRETS.sub(r"\1***", url)
