"""Who holds messages in flight, in words, with the command that takes them back."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS, DELETES_ON_COMMIT
from queue_core.watching.present import Holder, read_holders

#: The most consumers that are named.
_MOST = 5


def holding(catalog: Catalog, queue_id: int) -> list[Holder]:
    """Return the consumers that hold messages of a queue now, those of the most messages first."""
    with catalog.read() as connection:
        found = read_holders(connection, dialect.read_clock(connection), queue_id)
        return sorted(found, key=lambda each: -each.held)


def sentences(holders: Sequence[Holder], queue: str) -> list[str]:
    """Return a sentence for each consumer that holds messages of a queue."""
    found = [_sentence(each, queue) for each in holders[:_MOST]]
    if len(holders) > _MOST:
        found.append(f"and {len(holders) - _MOST:,} more hold messages: ignis consumers")
    return found


def _sentence(holder: Holder, queue: str) -> str:
    number = "1 message is" if holder.held == 1 else f"{holder.held:,} messages are"
    place = "" if holder.host is None else f" (process {holder.pid} on {holder.host})"
    silent = holder.silent_for
    is_alive = silent is not None and silent <= DEAD_AFTER_SECONDS
    if silent is None:
        life = "sends no heartbeats"
    else:
        life = "is alive" if is_alive else f"has sent no heartbeat for {silent:,.0f} s"
    held = f"{number} held by {holder.name}{place}, which {life}"
    names = f"{queue} --consumer {shlex.quote(holder.name)}"
    if holder.ack == DELETES_ON_COMMIT:
        first = "stop its query, and then run" if is_alive else "if its query will not restart, run"
        return f"{held}; {first}: ignis sweep {names}"
    return f"{held}; take them back with: ignis reload {names} --all"
