"""Spark's log of a query's batches, by which a sink recognises a repeated batch.

Spark writes the entry of a batch once, before the batch runs, with the time and the end of each
source. A batch that runs again has the same entry, and a batch that is planned anew has another
one.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit


def read_entry(checkpoint: str | None, number: int) -> tuple[str | None, str | None]:
    """
    Return the digest of the entry of a batch, and its tickets if all sources are ignis queues.

    Each is None if the checkpoint is not in a folder of this machine.
    """
    folder = _folder(checkpoint)
    if folder is None:
        return None, None
    try:
        data = folder.joinpath("offsets", str(number)).read_bytes()
    except OSError:
        return None, None
    return hashlib.blake2b(data, digest_size=16).hexdigest(), _tickets(data)


def _folder(checkpoint: str | None) -> Path | None:
    if not checkpoint:
        return None
    if checkpoint.startswith("file:"):
        return Path(unquote(urlsplit(checkpoint).path))
    return None if re.match(r"[A-Za-z][\w+.-]*:", checkpoint) else Path(checkpoint)


def _tickets(data: bytes) -> str | None:
    """Return the offsets of an entry, after its version and its metadata."""
    offsets = data.decode(errors="replace").splitlines()[2:]
    try:
        ours = all({*json.loads(line)} == {"consumer", "ticket"} for line in offsets)
    except (TypeError, ValueError):
        return None
    return "\n".join(offsets) if ours and offsets else None
