"""Find and check the columns that have a role for a queue, by its settings or by their names."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from queue_core.errors import BadOption
from queue_core.values.arrow_types import is_number
from queue_core.values.names import nearest
from queue_core.values.schema import EXPIRES_AT, HOLD_UNTIL
from queue_core.values.settings import QueueSettings


def expiring(settings: QueueSettings, schema: pa.Schema) -> str | None:
    """Return the column of expiry times, if the queue has one."""
    if settings.expires_at is not None:
        return settings.expires_at or None
    return EXPIRES_AT if EXPIRES_AT in schema.names else None


def holding(settings: QueueSettings, schema: pa.Schema) -> str | None:
    """Return the column of times before which a message is held, if the queue has one."""
    return settings.hold_until or (HOLD_UNTIL if HOLD_UNTIL in schema.names else None)


def described(settings: QueueSettings, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns whose statistics each slice keeps: those that firings evaluate."""
    roles = (expiring(settings, schema), holding(settings, schema), settings.priority)
    limited = [limit.column for limit in settings.limits]
    named = (*settings.attributes, *settings.categories, settings.group, *roles, *limited)
    return tuple(dict.fromkeys(name for name in named if name is not None))


def stamped(rows: pa.Table, column: str, at: int) -> pa.Table:
    """Return rows with a time, in microseconds, in place of the nulls of a timestamp column."""
    # Not at the top: most queues have no such column, and a query waits for imports.
    import pyarrow.compute as pc

    index, field = rows.schema.get_field_index(column), rows.schema.field(column)
    filled = pc.fill_null(rows.column(column), pa.scalar(at, field.type))
    return rows.set_column(index, field, filled)


def check(settings: QueueSettings, schema: pa.Schema, key: str | None) -> None:
    """Raise `BadOption` unless the columns that settings name exist and suit their roles."""
    for setting in ("attributes", "categories"):
        for name in getattr(settings, setting):
            _field(setting, name, schema)
    for name in settings.categories:
        kind = schema.field(name).type
        if pt.is_nested(kind):
            raise BadOption(
                f"categories: column {name!r} is {kind}, whose values cannot be told apart; use "
                "other columns"
            )
    for setting, (fits, what) in _NEEDS.items():
        name = getattr(settings, setting)
        if name and not fits(_field(setting, name, schema).type):
            raise BadOption(
                f"{setting}={name!r}: the column is {schema.field(name).type}; use {what}"
            )
    of_values = [("limits", limit.column) for limit in settings.limits]
    for setting, column in (*of_values, ("fair_by", settings.fair_by)):
        if column is not None:
            kind = _field(setting, column, schema).type
            if not (pt.is_string(kind) or pt.is_integer(kind) or pt.is_boolean(kind)):
                raise BadOption(
                    f"{setting}: column {column!r} is {kind}; use a column of strings, whole "
                    "numbers or booleans"
                )
    if settings.group is not None and settings.group != key:
        _field("group", settings.group, schema)
        raise BadOption(
            f"group={settings.group!r}: the messages of a group must be in one shard, but the key "
            f"of the queue, which picks the shard, is {key!r}; use that column, or create the "
            f"queue with key={settings.group!r}"
        )
    if settings.priority_aging is not None and settings.priority is None:
        raise BadOption("priority_aging without priority: set both, or both to none")


def _field(setting: str, name: str, schema: pa.Schema) -> pa.Field:
    if name not in schema.names:
        raise BadOption(f"{setting}: the queue has no column {name!r}{nearest(name, schema.names)}")
    return schema.field(name)


_NEEDS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "expires_at": (pt.is_timestamp, "a column of timestamps"),
    "hold_until": (pt.is_timestamp, "a column of timestamps"),
    "priority": (is_number, "a column of numbers"),
}
