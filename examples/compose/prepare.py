"""Make the bucket and the queues, once. Both servers may still be starting."""

from __future__ import annotations

import os
import time

import pyarrow as pa
from pyarrow import fs

from queue_core import Store


def make_bucket(name: str) -> None:
    """Make a bucket at AWS_ENDPOINT_URL, if it is not there; try for a minute."""
    scheme, _, endpoint = os.environ["AWS_ENDPOINT_URL"].partition("://")
    server = fs.S3FileSystem(
        endpoint_override=endpoint,
        scheme=scheme,
        region=os.environ["AWS_REGION"],
        allow_bucket_creation=True,
    )
    for seconds in range(60):
        try:
            server.create_dir(name)
            return
        except OSError as error:
            print(f"the storage does not answer yet: {error}")
            time.sleep(1 if seconds < 59 else 0)
    raise SystemExit(f"the storage at {endpoint} did not answer for a minute")


def main() -> None:
    """Make everything; what is there stays."""
    make_bucket(os.environ["IGNIS_STORAGE"].removeprefix("s3://").partition("/")[0])
    with Store.open() as store:
        store.create_queue(
            "documents",
            pa.schema([("document", pa.int64()), ("text", pa.string())]),
            exist_ok=True,
        )
        store.create_queue(
            "summaries",
            pa.schema([("document", pa.int64()), ("words", pa.int64())]),
            exist_ok=True,
        )


if __name__ == "__main__":
    main()
