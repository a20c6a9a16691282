"""Who holds messages in flight, in words, with the command that takes them back."""

from __future__ import annotations

import shlex
from collections.abc import Container

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS, DELETES_ON_COMMIT
from queue_core.values.model import QueueInfo
from queue_core.watching.causes import Holder, read_holders
from queue_core.watching.wording import counted


def holding(
    catalog: Catalog, queue: QueueInfo, without: Container[str] = ()
) -> tuple[dict[str, str], dict[str, int]]:
    """Return a sentence for each consumer that holds messages of a queue, and their numbers."""
    with catalog.read() as connection:
        found = read_holders(connection, dialect.read_clock(connection), [queue.id])
    holders = [each for each in found[queue.id] if each.name not in without]
    sentences = {each.name: _sentence(each, queue.name) for each in holders}
    return sentences, {each.name: each.held for each in holders}


def _sentence(holder: Holder, queue: str) -> str:
    silent = holder.silent_for
    if silent is None:
        life = "sends no heartbeats"
    else:
        life = "is alive" if _is_alive(holder) else f"has sent no heartbeat for {silent:,.0f} s"
    number = counted(holder.held, "message is", "messages are")
    return f"{number} held by {placed(holder)}, which {life}; {taking_back(holder, queue)}"


def placed(holder: Holder) -> str:
    """Return the name of a consumer with its process and machine, if they are known."""
    place = "" if holder.host is None else f" (process {holder.pid} on {holder.host})"
    return holder.name + place


def taking_back(holder: Holder, queue: str) -> str:
    """Return how a person takes back the messages that a consumer holds."""
    names = f"{queue} --consumer {shlex.quote(holder.name)}"
    if holder.ack == DELETES_ON_COMMIT:
        alive = _is_alive(holder)
        first = "stop its query, and then run" if alive else "if its query will not restart, run"
        return f"{first}: ignis sweep {names}"
    return f"take them back with: ignis reload {names} --all"


def _is_alive(holder: Holder) -> bool:
    return holder.silent_for is not None and holder.silent_for <= DEAD_AFTER_SECONDS
