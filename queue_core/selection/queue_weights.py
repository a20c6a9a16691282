"""Queue weights: in which proportion the queues of a firing share its limits.

If all queues have the weight 1, a firing takes evenly from all their shards, so a queue with more
shards has a larger share. Otherwise, the queues share the limit by the setting `weight`, and the
shards of a queue share its part evenly. A queue without messages leaves its part to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from queue_core.catalog.slices.shard_locks import place_in_turn
from queue_core.catalog.slices.slices import ShardKey
from queue_core.selection.request import FireRequest
from queue_core.values.plan import in_proportion, share


def shares_of_queues(
    request: FireRequest, available: Mapping[int, int], limit: int, turn: int = 0
) -> dict[int, int]:
    """Share *limit* among queues: by weight, or evenly from *turn* on."""
    if request.terms.weights:
        return in_proportion(available, limit, request.terms.weights, request.after)
    return share(available, limit, turn)


def bytes_of_queues(
    request: FireRequest, queue_ids: Sequence[int], max_bytes: int
) -> dict[int, int]:
    """Share bytes among queues that have some messages; each gets one byte at least."""
    parts = shares_of_queues(request, dict.fromkeys(queue_ids, max_bytes), max_bytes)
    return {queue_id: max(part, 1) for queue_id, part in parts.items()}


def shares(
    request: FireRequest,
    available: Mapping[ShardKey, int],
    limit: int,
    fired: Mapping[ShardKey, int] | None = None,
) -> dict[ShardKey, int]:
    """Share *limit* among shards; *fired* is how many messages were ever fired from each."""
    before = fired or {}
    if not request.terms.weights:
        turn = sum(before.get(key, 0) for key, count in available.items() if count)
        places = {place_in_turn(key): count for key, count in available.items()}
        return {place_in_turn(place): n for place, n in share(places, limit, turn).items()}
    of_queues: dict[int, dict[ShardKey, int]] = defaultdict(dict)
    for key, count in available.items():
        of_queues[key[0]][key] = count
    waiting = {queue_id: sum(counts.values()) for queue_id, counts in of_queues.items()}
    found: dict[ShardKey, int] = {}
    for queue_id, part in shares_of_queues(request, waiting, limit).items():
        turn = sum(before.get(key, 0) for key in of_queues[queue_id])
        found |= share(of_queues[queue_id], part, turn)
    return found
