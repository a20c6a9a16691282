"""Which file system the URI of a storage means, and how patiently its server is asked.

A folder, a bucket (of S3, or of a server that speaks like it), or anything else that `pyarrow.fs`
knows. The URI of a bucket is read here, as pyarrow takes no time limits in one.
"""

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
import pyarrow.fs as pafs

from queue_core.address import masked
from queue_core.errors import BadOption, StorageUnavailable
from queue_core.names import nearest

#: Seconds to wait for a connection to the server of a bucket, and then without any byte from it.
CONNECT_SECONDS = 3.0
SILENT_SECONDS = 10.0
#: How often it is asked before the caller hears that it cannot be reached.
ATTEMPTS = 3

#: What may be said of a bucket's server behind the question mark of its URI, as in pyarrow's own.
_OF_A_SERVER = ("endpoint_override", "region", "scheme")
#: Where the environment tells of a server other than Amazon's.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def connect(uri: str) -> tuple[pafs.FileSystem, str]:
    """
    The file system of a folder or a URI, and the folder in it.

    Raises `BadOption`, and `StorageUnavailable` where somebody has to be asked and does not answer.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), str(Path(uri).absolute())
    try:
        return _bucket(uri) if uri.startswith("s3://") else pafs.FileSystem.from_uri(uri)
    # Neither with its cause, which may quote the URI as it stands.
    except (pa.ArrowException, ValueError) as error:
        raise BadOption(
            f"storage={masked(uri)!r} is no file system URI: {masked(str(error))}"
        ) from None
    except OSError as error:
        raise StorageUnavailable(
            f"storage {masked(uri)} cannot be reached: {masked(str(error))}"
        ) from None


def _bucket(uri: str) -> tuple[pafs.FileSystem, str]:
    """``s3://bucket/prefix``, with what pyarrow takes before and behind that."""
    place, _, query = uri.removeprefix("s3://").partition("?")
    given, _, path = place.rpartition("@")
    bucket, _, prefix = path.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError("it names no bucket; use s3://bucket/prefix")
    key, _, secret = given.partition(":")
    server = _server(dict(parse_qsl(query)))
    if "region" not in server:
        server["region"] = pafs.resolve_s3_region(bucket)
    filesystem = pafs.S3FileSystem(
        # Without them pyarrow looks where Amazon's own tools do: in the environment, first of all.
        access_key=unquote(key) or None,
        secret_key=unquote(secret) or None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **server,
    )
    return filesystem, f"{bucket}/{unquote(prefix)}".rstrip("/")


def _server(said: dict[str, str]) -> dict[str, str]:
    """Where a bucket's server is: as its URI says, or else the environment."""
    for name in said:
        if name not in _OF_A_SERVER:
            raise ValueError(f"unknown parameter {name!r}{nearest(name, _OF_A_SERVER)}")
    endpoint = said.get("endpoint_override") or _first_of(_ENDPOINTS)
    if endpoint is None:
        return said
    scheme, separator, host = endpoint.rpartition("://")
    found = {"region": _first_of(_REGIONS) or "us-east-1", **said}
    found["endpoint_override"] = host.rstrip("/")
    if separator:
        found.setdefault("scheme", scheme)
    return found


def _first_of(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
