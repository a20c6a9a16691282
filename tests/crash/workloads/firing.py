"""Messages are fired."""

from __future__ import annotations

from queue_core import Store, limit
from queue_core.values.model import Magazine, State
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import FEW, Workload, around, prepared, the_queue
from tests.factories import make_queue

#: How many tokens there are, and the seconds in which as many come.
TOKENS, DAY = 10_000, 86_400


def fires(store: Store, journal: Journal) -> None:
    reader = store.consumer("reader")
    for _ in range(2):
        firing = the_queue(store).fire(FEW, consumer=reader)
        journal.write("fired", ids=firing.ids.to_pylist())


def limited(store: Store, journal: Journal) -> None:
    """A queue whose firings take tokens of a limit that another queue shares."""
    prepared(store, journal)
    crm = limit(name="crm", in_flight=TOKENS, per_second=TOKENS / DAY, window=DAY)
    the_queue(store).admin.change_settings(limits=crm)
    make_queue(store, "other", limits=crm)


def fired_apart(store: Store, journal: Journal) -> None:
    """No firing gave what another one had given."""
    seen = [i for entry in journal.read("fired") for i in entry["ids"]]
    assert len(seen) == len(set(seen))
    assert set(seen) <= audit(store).ids(Magazine.MAIN, State.FIRED)


def spent_as_fired(store: Store, journal: Journal) -> None:
    """Each firing has taken its tokens, or there was none, and passed over nothing in a shard."""
    fired_apart(store, journal)
    messages = the_queue(store).browse().to_pylist()
    for shard in range(3):
        held = [each["_fired_at"] is not None for each in messages if each["_shard"] == shard]
        assert held == sorted(held, reverse=True)
    fired = len(audit(store).ids(Magazine.MAIN, State.FIRED))
    rows = store.view("limits").to_pylist()
    assert len(rows) == 2
    for row in rows:
        assert row["in_flight"] == fired
        # A token comes in nine seconds.
        assert 0 <= row["tokens"] - (TOKENS - fired) < FEW


_FIRE = Workload(prepare=limited, act=fires, check=spent_as_fired)

FAULTS = {
    **around("fire", _FIRE, "", ":2"),
}
