"""A part of the step from format 1 to 2: due times of sidelined messages, and policies of queues.

The settings `max_attempts` and `shovel_backoff` of format 1 become a policy that does the same, and
the sidelined messages of their queues get the times that they would have had. Other queues have no
policy, so that they behave as before.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, text

#: Seconds: the longest wait of a policy. A queue whose shovels run on request only waits so long.
_LONGEST = 3_155_760_000
#: How often failures doubled the first wait.
_DOUBLINGS = 16
#: The time of dead messages.
_NEVER = 2**62
_SIDELINE = 1


def introduce(connection: Connection) -> None:
    """Add the column and its index, and convert settings and messages."""
    connection.exec_driver_sql("ALTER TABLE slices ADD COLUMN due_at BIGINT")
    connection.exec_driver_sql(
        "CREATE INDEX slices_due ON slices (queue_id, due_at) WHERE due_at IS NOT NULL"
    )
    for queue_id, stored in connection.execute(text("SELECT id, settings FROM queues")).all():
        settings = json.loads(stored)
        most, first = settings.pop("max_attempts", None), settings.pop("shovel_backoff", 0.0)
        if most is None and not first:
            continue
        waits = _waits(settings.get("shovel_interval"), first)
        settings["retry"] = f"Retry(attempts={most}, backoff={_backoff(waits)})"
        connection.execute(
            text("UPDATE queues SET settings = :settings WHERE id = :queue"),
            {"settings": json.dumps(settings, sort_keys=True), "queue": queue_id},
        )
        _set_times(connection, queue_id, most, waits)


def _waits(interval: float | None, first: float) -> list[int]:
    """Return the seconds of waiting after one failure, after two, and so on; the last one stays."""
    if interval is None:
        return [_LONGEST]
    if not first:
        return [max(round(interval), 1)]
    return [round(min(max(first, 1) * 2**doubled, _LONGEST)) for doubled in range(_DOUBLINGS + 1)]


def _backoff(waits: list[int]) -> str:
    if len(set(waits)) == 1:
        return f"constant({waits[0]})"
    return f"exponential({waits[0]}, factor=2, max={waits[-1]})"


def _set_times(connection: Connection, queue_id: int, most: int | None, waits: list[int]) -> None:
    waiting = text(
        "UPDATE slices SET due_at = moved_at + :wait "
        "WHERE queue_id = :queue AND magazine = :magazine AND attempts >= :failures"
    )
    here = {"queue": queue_id, "magazine": _SIDELINE}
    for failures, seconds in enumerate(waits, start=1):
        # A swept message has no failure, and waits as after one.
        least = 0 if failures == 1 else failures
        connection.execute(waiting, here | {"wait": seconds * 1_000_000, "failures": least})
    if most is not None:
        dead = text(
            "UPDATE slices SET due_at = :never "
            "WHERE queue_id = :queue AND magazine = :magazine AND attempts >= :failures"
        )
        connection.execute(dead, here | {"never": _NEVER, "failures": most})
