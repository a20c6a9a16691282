"""A process of one version of ignis, beside others: ``python versions.py JOB``.

It uses what both versions have in public, and nothing of the tests: the older version runs it too.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import pyarrow as pa

from queue_core import ConsumerPool, Store


def hold(job: dict[str, Any]) -> None:
    """Take messages as a pool with a name, say so, and wait to be killed."""

    def wait(message: dict[str, Any]) -> bool:
        print("holds", flush=True)
        time.sleep(3600)
        return True

    with (
        Store.open(**job["store"], create=False) as store,
        ConsumerPool(store, "shared", wait, name="till", concurrency=1) as pool,
    ):
        pool.drain()


def take_over(job: dict[str, Any]) -> dict[str, Any]:
    """Handle all messages under the same name; return their numbers."""
    with Store.open(**job["store"], create=False) as store:
        return {"deleted": drained(store, name="till")}


def drained(store: Store, **how: Any) -> list[int]:
    """Handle what there is; return the numbers."""
    handled: list[int] = []

    def note(message: dict[str, Any]) -> bool:
        handled.append(message["number"])
        return True

    with ConsumerPool(store, "shared", note, concurrency=2, batch=5, **how) as pool:
        assert pool.drain(120)
    return handled


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Load, fire and settle in rounds; then return the numbers that were loaded and deleted."""
    name, chance = job["name"], random.Random(job["name"])
    loaded: list[int] = []
    deleted: list[int] = []
    with Store.open(**job["store"], create=False) as store:
        queue = store.queue("shared")
        for first in range(job["first"], job["first"] + 10 * job["rounds"], 10):
            numbers = list(range(first, first + chance.randint(1, 9)))
            rows = [{"number": each, "customer": f"c{each % 7}"} for each in numbers]
            queue.load(rows if chance.random() < 0.5 else pa.Table.from_pylist(rows))
            loaded += numbers
            messages = queue.fire(chance.randint(1, 12)).messages
            for outcome in ("delete", "sideline", "reload"):
                mine = [chance.random() < 0.4 for _ in range(messages.num_rows)]
                if outcome == "reload":
                    mine = [True] * messages.num_rows
                some = messages.filter(pa.array(mine, pa.bool_()))
                messages = messages.filter(pa.array([not each for each in mine], pa.bool_()))
                settled = getattr(queue, outcome)(some.column("_message_id"))
                assert settled == some.num_rows, (name, outcome, settled, some.num_rows)
                if outcome == "delete":
                    deleted += some.column("number").to_pylist()
            if chance.random() < 0.2:
                queue.shovel(force=True)
            if chance.random() < 0.1:
                # The older version has it on the queue itself.
                getattr(queue, "admin", queue).compact()
        if job.get("pool"):
            deleted += drained(store)
    return {"name": name, "loaded": loaded, "deleted": deleted}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps({"hold": hold, "take over": take_over, "work": work}[asked["do"]](asked)))
