"""Connect to the file system of a storage's URI, with time limits for its server.

A folder, a bucket (of S3 or a compatible server), or any other URI that `pyarrow.fs` supports. This
module parses the URI of a bucket itself, because pyarrow accepts no time limits in one.
"""

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
import pyarrow.fs as pafs

from queue_core.errors import BadOption, StorageUnavailable
from queue_core.values.address import masked
from queue_core.values.names import nearest

#: Seconds to wait for a connection to the server of a bucket, and for each next byte.
CONNECT_SECONDS = 3.0
SILENT_SECONDS = 10.0
#: Characters of an error's text that are shown.
_LONGEST = 400
#: Attempts of a request before it fails.
ATTEMPTS = 3

#: Parameters of a bucket's server after the question mark of its URI; the names are pyarrow's.
_OF_A_SERVER = ("endpoint_override", "region", "scheme")
#: Environment variables that name a server other than Amazon's.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def connect(uri: str) -> tuple[pafs.FileSystem, str]:
    """
    Return the file system of a folder or a URI, and the path in it.

    Raises `BadOption`, and `StorageUnavailable` when a server does not answer.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), str(Path(uri).absolute())
    if uri.startswith(("s3a://", "s3n://")):
        raise BadOption(
            f"storage={masked(uri)!r}: Arrow reaches buckets as s3://; write "
            f"storage={masked('s3://' + uri[6:])}"
        )
    try:
        return _bucket(uri) if uri.startswith("s3://") else pafs.FileSystem.from_uri(uri)
    # Both without the cause, which may quote the URI with its credentials.
    except (pa.ArrowException, ValueError) as error:
        raise BadOption(
            f"storage={masked(uri)!r} is not a file system URI: {_short(error)}"
        ) from None
    except OSError as error:
        raise StorageUnavailable(
            f"storage {masked(uri)} cannot be reached: {_short(error)}"
        ) from None


def _short(error: Exception) -> str:
    """Return an error's text without credentials, cut where it lists every library it tried."""
    # libhdfs lists each place where it has looked, one a line.
    text = masked(str(error)).partition("\ndlopen(")[0]
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _bucket(uri: str) -> tuple[pafs.FileSystem, str]:
    """Connect to ``s3://key:secret@bucket/prefix?parameters``."""
    address, _, query = uri.removeprefix("s3://").partition("?")
    credentials, _, path = address.rpartition("@")
    bucket, _, prefix = path.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError("the URI names no bucket; use s3://bucket/prefix")
    key, _, secret = credentials.partition(":")
    server = _server(dict(parse_qsl(query)))
    if "region" not in server:
        server["region"] = pafs.resolve_s3_region(bucket)
    filesystem = pafs.S3FileSystem(
        # Without them, pyarrow looks where Amazon's tools do: first in the environment.
        access_key=unquote(key) or None,
        secret_key=unquote(secret) or None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **server,
    )
    return filesystem, f"{bucket}/{unquote(prefix)}".rstrip("/")


def _server(given: dict[str, str]) -> dict[str, str]:
    """Return the parameters of a bucket's server, from its URI or else the environment."""
    for name in given:
        if name not in _OF_A_SERVER:
            raise ValueError(f"unknown parameter {name!r}{nearest(name, _OF_A_SERVER)}")
    endpoint = given.get("endpoint_override") or _first_of(_ENDPOINTS)
    if endpoint is None:
        return given
    scheme, separator, host = endpoint.rpartition("://")
    found = {"region": _first_of(_REGIONS) or "us-east-1", **given}
    found["endpoint_override"] = host.rstrip("/")
    if separator:
        found.setdefault("scheme", scheme)
    return found


def _first_of(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
