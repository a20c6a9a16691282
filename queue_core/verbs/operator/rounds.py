"""Carry out what a person does with many messages, in rounds between which others have the store.

Each round is one transaction of the verb intervene, and whole in itself. A process that ends in
between leaves the messages of the other rounds as they were. The rounds concern the messages that
are found at the beginning, each of them once: others that come into the right state meanwhile stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.records import progress, task_log
from queue_core.selection.rounds import in_parts
from queue_core.values.ids import IdSet
from queue_core.values.model import QueueInfo
from queue_core.verbs.intervene import Intervention, find, intervene

#: How often messages are looked for that a compaction has put into other slices meanwhile.
PASSES = 3


def carry_out(catalog: Catalog, queue: QueueInfo, intervention: Intervention) -> int:
    """Carry out an intervention; return how many messages it has changed. Raises `BadOption`."""
    changed = 0
    task_log.prepare()
    if intervention.is_by_age:
        clock.check(catalog)
    for _ in range(PASSES):
        with catalog.read() as connection:
            found = find(connection, queue, intervention)
            parts = in_parts(connection, found)
        expected = sum(len(rows) for _, rows in found)
        # Thousands of objects, which each garbage collection within a round would look through.
        del found
        if not parts:
            break
        done, left = 0, []
        for part in parts:
            these = intervene(catalog, queue, intervention.of_part(part))
            progress.add(len(these))
            done += len(these)
            if len(these) < len(part.ids):
                left.append((part.ids - these).numbers())
            if part is not parts[-1]:
                catalog.give_way()
        changed += done
        if done == expected or (not done and len(parts) > 1):
            break
        intervention = replace(intervention, ids=IdSet.of(np.concatenate(left)))
    return changed
