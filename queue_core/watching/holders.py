"""Who holds messages in flight, in words, with the command that takes them back."""

from __future__ import annotations

import shlex
from collections.abc import Container

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS, DELETES_ON_COMMIT
from queue_core.values.model import QueueInfo
from queue_core.watching.causes import Holder, read_holders
from queue_core.watching.wording import messages


def holding(
    catalog: Catalog, queue: QueueInfo, without: Container[str] = ()
) -> tuple[dict[str, str], dict[str, int]]:
    """Return a sentence for each consumer that holds messages of a queue, and their numbers."""
    with catalog.read() as connection:
        found = read_holders(connection, dialect.read_clock(connection), queue.id)
    holders = [each for each in found[queue.id] if each.name not in without]
    sentences = {each.name: _sentence(each, queue.name) for each in holders}
    return sentences, {each.name: each.held for each in holders}


def _sentence(holder: Holder, queue: str) -> str:
    place = "" if holder.host is None else f" (process {holder.pid} on {holder.host})"
    silent = holder.silent_for
    is_alive = silent is not None and silent <= DEAD_AFTER_SECONDS
    if silent is None:
        life = "sends no heartbeats"
    else:
        life = "is alive" if is_alive else f"has sent no heartbeat for {silent:,.0f} s"
    number = messages(holder.held, "is", "are")
    held = f"{number} held by {holder.name}{place}, which {life}"
    names = f"{queue} --consumer {shlex.quote(holder.name)}"
    if holder.ack == DELETES_ON_COMMIT:
        first = "stop its query, and then run" if is_alive else "if its query will not restart, run"
        return f"{held}; {first}: ignis sweep {names}"
    return f"{held}; take them back with: ignis reload {names} --all"
