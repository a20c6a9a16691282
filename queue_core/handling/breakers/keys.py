"""Keys: the values of a breaker's column as texts, and as conditions of a firing."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from queue_core.errors import BadOption
from queue_core.handling.breakers.breaker import WHOLE, Breaker
from queue_core.values.names import nearest
from queue_core.values.valid_text import valid

_log = logging.getLogger(__name__)

#: A longer key is never stopped.
LONGEST = 300

#: The longest name of a breaker.
LONGEST_NAME = 200

NULL = "null"


def check_by(breaker: Breaker, queue: str, schema: pa.Schema) -> None:
    """Raise `BadOption` if a queue has no suitable column for *breaker*."""
    by = breaker.by
    if by is None:
        return
    if by not in schema.names:
        raise BadOption(
            f"breaker: by={by!r}: queue {queue!r} has no column {by!r}{nearest(by, schema.names)}"
        )
    kind = schema.field(by).type
    if not (pt.is_string(kind) or pt.is_integer(kind) or pt.is_boolean(kind)):
        raise BadOption(
            f"breaker: by={by!r}: column {by!r} of queue {queue!r} is {kind}; use a column of "
            "strings, whole numbers or booleans"
        )


def name_for(queues: Sequence[str]) -> str:
    """Return the name of the breaker of a handler of some queues, if the user gives none."""
    names = ",".join(sorted(queues))
    return names if len(names) <= LONGEST_NAME else hashlib.sha256(names.encode()).hexdigest()


def key_of(value: Any) -> str:
    """Return the key of a value."""
    return json.dumps(value, ensure_ascii=False)


def is_too_long(key: str) -> bool:
    """Return whether a key, for which too many calls failed, is too long to be stopped."""
    if len(key) <= LONGEST:
        return False
    _log.warning(
        "breaker: too many calls failed for the value %s…, but a value of more than %d characters "
        "is never held back",
        key[:50],
        LONGEST,
    )
    return True


def value_of(key: str) -> Any:
    """Return the value of a key."""
    return None if key == WHOLE else json.loads(key)


def keys_of(batch: pa.RecordBatch, by: str | None) -> pa.DictionaryArray:
    """Return the key of each message, with each key once in the dictionary."""
    if by is None:
        indices = pa.array([0], pa.int32()).take(pa.repeat(pa.scalar(0), batch.num_rows))
        return pa.DictionaryArray.from_arrays(indices, pa.array([WHOLE]))
    encoded = valid(batch.column(by)).dictionary_encode(null_encoding="encode")
    keys = pa.array([key_of(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, keys)


def listed(batch: pa.RecordBatch, by: str | None) -> list[str]:
    """Return the same as a list; a dictionary array makes each of its values anew."""
    if by is None:
        return [WHOLE] * batch.num_rows
    keys = keys_of(batch, by)
    texts = keys.dictionary.to_pylist()
    return [texts[index] for index in keys.indices.to_numpy().tolist()]


def condition(by: str, keys: Collection[str], *, among: bool) -> str:
    """Return the SQL condition that a message's key is, or is not, *among* some keys."""
    column = "`" + by.replace("`", "``") + "`"
    literals = [_literal(key) for key in sorted(keys) if key != NULL]
    parts = [f"{column} IN ({', '.join(literals)})"] if literals else []
    parts += [f"{column} IS NULL"] if NULL in keys else []
    text = " OR ".join(f"({part})" for part in parts)
    return f"({text})" if among else f"NOT (({text}) IS TRUE)"


def restricted(selector: str | None, conditions: Sequence[str]) -> str | None:
    """Return a selector that all conditions restrict further."""
    parts = [f"({text})" for text in ([selector] if selector else [])] + list(conditions)
    return " AND ".join(parts) or None


def _literal(key: str) -> str:
    value = json.loads(key)
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value).lower()
