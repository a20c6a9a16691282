"""What the workers do with each document: `ignis work handlers:count_words`."""

from __future__ import annotations

from typing import Any

from queue_core import Reject


def count_words(message: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a document for the queue `summaries`; a service would be called here."""
    words = (message["text"] or "").split()
    if not words:
        raise Reject("the document is empty")
    return {"document": message["document"], "words": len(words)}
