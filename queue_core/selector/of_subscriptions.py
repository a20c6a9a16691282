"""The selectors of subscriptions: over what a message has before it comes into a queue."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from queue_core.selector.predicate import Selector
from queue_core.values.schema import output_schema

#: What a message has only in a queue, or what may differ when it is fired again.
_OF_FIRINGS = {"_attempt", "_fired_at"}


@lru_cache(maxsize=256)
def parsed(text: str, schema: pa.Schema) -> Selector:
    """Return the condition over the columns of the log's messages; raises `BadSelector`."""
    visible = [field for field in output_schema(schema) if field.name not in _OF_FIRINGS]
    return Selector.parse(text, pa.schema(visible))
