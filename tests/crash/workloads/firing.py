"""Messages are fired."""

from __future__ import annotations

from queue_core import Store
from queue_core.values.model import Magazine, State
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import FEW, Workload, around, prepared, the_queue


def fires(store: Store, journal: Journal) -> None:
    reader = store.consumer("reader")
    for _ in range(2):
        firing = the_queue(store).fire(FEW, consumer=reader)
        journal.write("fired", ids=firing.ids.to_pylist())


def fired_apart(store: Store, journal: Journal) -> None:
    """No firing gave what another one had given, and nothing was passed over in its shard."""
    seen = [i for entry in journal.read("fired") for i in entry["ids"]]
    assert len(seen) == len(set(seen))
    assert set(seen) <= audit(store).ids(Magazine.MAIN, State.FIRED)


_FIRE = Workload(prepare=prepared, act=fires, check=fired_apart)

FAULTS = {
    **around("fire", _FIRE, "", ":2"),
}
