"""Steps of the machine in which processes with handlers die, and lose what they hold."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from queue_core.values.model import Magazine
from queue_core.verbs.lose import start_again
from tests.property.choices import FAIR, GROUPED, URGENT

POOLS = ("pool-1", "pool-2")
pools = st.sampled_from(POOLS)
#: Queues of all kinds of order.
kinds = st.sampled_from(["wide", FAIR, GROUPED, URGENT])


class Losing:
    """A part of the machine of `test_invariants`."""

    @rule(pool=pools)
    def start(self, pool: str) -> None:
        """A process starts, perhaps again."""
        self.lives[pool] = start_again(self.store.catalog, pool)
        self.model.start(pool)

    @rule(
        name=kinds,
        limit=st.one_of(st.none(), st.integers(1, 12)),
        magazine=st.sampled_from([Magazine.MAIN] * 5 + [Magazine.SIDELINE]),
        pool=pools,
    )
    def handle(self, name: str, limit: int | None, magazine: Magazine, pool: str) -> None:
        """A process with handlers fires messages; suspects only with empty hands."""
        where = magazine.name.lower()
        firing = self.queue(name).fire(limit or "all", magazine=where, consumer=self.lives[pool])

        ids = firing.ids.to_pylist()
        self.check_fired(ids, name, magazine, limit=limit, pool=pool)
        if firing:
            self.note_fired(ids, pool, firing.ticket.number)

    @rule(name=kinds, limit=st.integers(2, 12), pool=pools, deaths=st.integers(2, 6))
    def die(self, name: str, limit: int, pool: str, deaths: int) -> None:
        """A process dies again and again, with all that it has fired."""
        for _ in range(deaths):
            self.start(pool)
            self.handle(name, limit, Magazine.MAIN, pool)
        self.start(pool)
