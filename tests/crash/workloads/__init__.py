"""For each crash point of the core, work that passes it, and what must come of doing it again.

A workload is prepared in the test, done in a child that dies of it, and done again in the test.
Whatever it loads or deletes is in the journal: before a deletion, and after a load has returned.
"""

from __future__ import annotations

from tests.crash.workloads import (
    acknowledging,
    backing_up,
    by_hand,
    creating,
    damage,
    ending,
    firing,
    loading,
    losing,
    reading,
    rewriting,
    settling,
    sidelining,
    smart,
    without_room,
)
from tests.crash.workloads.common import Workload

#: What to run for each fault: a point, and at which passage the child dies.
WORKLOADS: dict[str, Workload] = {
    **acknowledging.FAULTS,
    **backing_up.FAULTS,
    **by_hand.FAULTS,
    **creating.FAULTS,
    **damage.FAULTS,
    **ending.FAULTS,
    **firing.FAULTS,
    **loading.FAULTS,
    **losing.FAULTS,
    **reading.FAULTS,
    **rewriting.FAULTS,
    **settling.FAULTS,
    **sidelining.FAULTS,
    **smart.FAULTS,
    **without_room.FAULTS,
}
