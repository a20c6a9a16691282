"""The states of circuit breakers, which all processes share: one row per breaker and key.

A process reads the rows that are not plainly closed, and writes only transitions: no transaction
belongs to a message. `queue_core.handling.breakers.states` decides. A probe has a lease, which its
process renews. If that process dies, another one probes when the lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, RowMapping, delete, func, or_, select, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import breakers
from queue_core.handling.breakers import states
from queue_core.handling.breakers.breaker import Breaker
from queue_core.handling.breakers.keys import name_for
from queue_core.handling.breakers.states import CLOSED, BreakerState

#: Closed rows are removed after this time.
_KEPT_SECONDS = 7 * 86_400.0


class KnownBreakers(NamedTuple):
    """The shared states of a breaker."""

    states: dict[str, BreakerState]
    now: int

    @property
    def stopped(self) -> set[str]:
        """The keys whose messages are held back."""
        return {key for key, state in self.states.items() if state.stops}

    @property
    def exempt(self) -> set[str]:
        """The keys that a person has closed."""
        return {key for key, state in self.states.items() if state.forced and not state.stops}

    @property
    def due(self) -> list[str]:
        """The keys whose next probe is due."""
        return [key for key, state in self.states.items() if states.is_due(state, self.now)]


def read(connection: Connection, name: str) -> KnownBreakers:
    """Return the states of a breaker, except those that are plainly closed."""
    rows = connection.execute(
        select(breakers, dialect.now().label("now")).where(
            breakers.c.name == name, or_(breakers.c.state != CLOSED, breakers.c.forced)
        )
    ).all()
    return KnownBreakers({row.value: _state(row) for row in rows}, rows[0].now if rows else 0)


def opened(connection: Connection, most: int) -> Sequence[Row[Any]]:
    """Return the first rows, by name, of breakers that are not closed."""
    query = select(breakers).where(breakers.c.state != CLOSED).order_by(breakers.c.name)
    return connection.execute(query.limit(most)).all()


def count_opened(connection: Connection) -> dict[str, int]:
    """Return how many keys of each breaker are not closed."""
    query = select(breakers.c.name, func.count().label("open")).group_by(breakers.c.name)
    return dict(connection.execute(query.where(breakers.c.state != CLOSED)).all())


def all_states(connection: Connection) -> Sequence[RowMapping]:
    """Return the rows of all breakers, in order."""
    order = (breakers.c.name, breakers.c.value)
    return connection.execute(select(breakers).order_by(*order)).mappings().all()


def trip(connection: Connection, name: str, key: str, breaker: Breaker, consumer: str) -> None:
    """Open a breaker, because too many calls failed."""
    _change(connection, name, key, lambda state, now: states.tripped(state, breaker, now), consumer)


def claim(connection: Connection, name: str, key: str, lease: float, consumer: str) -> bool:
    """Claim the probe that is due; False if another process was faster."""
    micros = states.micros(lease)
    return _change(
        connection, name, key, lambda state, now: states.claimed(state, micros, now), consumer
    )


def renew(connection: Connection, name: str, key: str, lease: float) -> None:
    """Extend the lease of a probe."""
    micros = states.micros(lease)
    _change(connection, name, key, lambda state, now: states.renewed(state, micros, now), None)


def probed(
    connection: Connection,
    name: str,
    key: str,
    breaker: Breaker,
    failed: bool | None,
    consumer: str,
) -> None:
    """Close a breaker, or wait longer, as its probe shows; None: it found no message."""
    _change(
        connection,
        name,
        key,
        lambda state, now: states.probed(state, breaker, failed, now),
        consumer,
    )
    if failed is False:
        old = dialect.now() - states.micros(_KEPT_SECONDS)
        connection.execute(
            delete(breakers).where(
                breakers.c.state == CLOSED, ~breakers.c.forced, breakers.c.since_at < old
            )
        )


def force(connection: Connection, name: str, key: str, to: str | None) -> BreakerState:
    """Have a person open or close a breaker, or with None leave it to itself again."""

    def decide(state: BreakerState, now: int) -> BreakerState:
        return states.released(state, now) if to is None else states.forced(state, to, now)

    if to is None and connection.execute(select(breakers).where(*_of(name, key))).first() is None:
        # It has never opened.
        return BreakerState()
    _change(connection, name, key, decide, None)
    row = connection.execute(select(breakers).where(*_of(name, key))).one()
    return _state(row)


def forget(connection: Connection, queue: str) -> None:
    """Remove the states of the breaker that has the name of a queue, unless the user gives one."""
    connection.execute(delete(breakers).where(breakers.c.name == name_for([queue])))


def _change(
    connection: Connection,
    name: str,
    key: str,
    decide: Callable[[BreakerState, int], BreakerState | None],
    consumer: str | None,
) -> bool:
    """Change a row as *decide* says, one process after another; return whether it changed."""
    fresh = {"state": CLOSED, "forced": False, "since_at": 0, "pause": 0, "opened": 0}
    connection.execute(
        dialect.of(connection)
        .insert_new(breakers)
        .values(name=name, value=key, **fresh)
        .on_conflict_do_nothing()
    )
    row = connection.execute(
        dialect.of(connection).locked(select(breakers).where(*_of(name, key)))
    ).one()
    new = decide(_state(row), dialect.read_clock(connection))
    if new is None:
        return False
    values = {
        "state": new.state,
        "forced": new.forced,
        "since_at": new.since,
        "until_at": new.until,
        "pause": new.pause,
        "opened": new.opened,
    }
    by = {} if consumer is None else {"consumer": consumer}
    connection.execute(update(breakers).where(*_of(name, key)).values(**values, **by))
    return True


def _of(name: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return breakers.c.name == name, breakers.c.value == key


def _state(row: Row[Any]) -> BreakerState:
    return BreakerState(
        row.state, bool(row.forced), row.since_at, row.until_at, row.pause, row.opened
    )
