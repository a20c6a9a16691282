"""A person requeues messages of the sideline."""

from __future__ import annotations

from queue_core import Store
from tests.children import Journal
from tests.crash.workloads.common import Workload, everything_waits, the_queue
from tests.crash.workloads.sidelining import sidelines


def requeues(store: Store, journal: Journal) -> None:
    the_queue(store).choose("all").requeue()


_REQUEUE = Workload(prepare=sidelines, act=requeues, check=everything_waits)

FAULTS = {
    "intervene.before_commit": _REQUEUE,
    "intervene.committed": _REQUEUE,
}
