"""The states of circuit breakers, which all processes share: one row per breaker.

A process reads the row of its breaker, and writes only transitions: no transaction belongs to a
message. `queue_core.handling.breaker_state` decides. A probe has a lease; if its process dies or
its call takes longer, another one probes when the lease ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, Row, RowMapping, delete, select, update

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.record_tables import breakers
from queue_core.catalog.records.acts import Subject, by_hand, noting
from queue_core.handling.breaker import Breaker, check_name
from queue_core.handling.breaker_state import CLOSED, OPEN, BreakerState
from queue_core.support.interruption import shielded

#: Returns the state after a transition at a time of the catalog; None if it is not possible.
_Transition: TypeAlias = Callable[[BreakerState, int], BreakerState | None]

#: The columns of a state, in the order of its fields.
_COLUMNS = ("state", "forced", "since_at", "until_at", "pause", "opened", "opened_at")
_log = logging.getLogger(__name__)


class BreakerLook(NamedTuple):
    """What a process has found."""

    state: BreakerState
    #: Whether the process has claimed the probe that was due.
    probes: bool


class SharedBreaker:
    """A breaker as one process sees and changes it. A probe may take *lease* seconds."""

    def __init__(self, catalog: Catalog, breaker: Breaker, name: str, lease: float) -> None:
        self.name = name
        self._catalog = catalog
        self._breaker = breaker
        self._lease = lease
        self._check = breaker.asks()
        #: The last error of the check.
        self._failure = ""

    def look(self, consumer: str, *, may_probe: bool = True) -> BreakerLook:
        """Read the state; claim a probe that is due, or make the check instead of it."""
        state, now = self._read()
        if not may_probe or not state.is_due(now):
            return BreakerLook(state, False)
        claimed = self._change(lambda state, now: state.claimed(self._lease, now), consumer)
        if not claimed or self._check is None:
            return BreakerLook(state, claimed)
        self.probed(not self._asked(self._check), consumer)
        return BreakerLook(self._read()[0], False)

    def trip(self, consumer: str) -> None:
        """Open the breaker, because too many calls failed."""
        if self._change(lambda state, now: state.tripped(self._breaker, now), consumer):
            _log.warning("breaker %r is open: too many calls failed", self.name)

    def probed(self, failed: bool | None, consumer: str) -> None:
        """Close the breaker, or wait longer, as its probe shows; None: it found no message."""
        changed = self._change(lambda s, now: s.probed(self._breaker, failed, now), consumer)
        if changed and failed is False:
            _log.info("breaker %r is closed: a probe succeeded", self.name)

    def _read(self) -> tuple[BreakerState, int]:
        query = select(breakers, dialect.now().label("now")).where(breakers.c.name == self.name)
        with self._catalog.read() as connection:
            row = connection.execute(query).first()
        return (BreakerState(), 0) if row is None else (_state(row), row.now)

    def _change(self, transition: _Transition, consumer: str) -> bool:
        return self._catalog.write(
            lambda connection: _change(connection, self.name, transition, consumer)
        )

    def _asked(self, check: Callable[[], object]) -> bool:
        try:
            return bool(check())
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            # A check that cannot succeed would keep the breaker open in silence.
            level = logging.INFO if repr(error) == self._failure else logging.WARNING
            self._failure = repr(error)
            _log.log(level, "breaker %r: its check failed: %r", self.name, error)
            return False


@shielded
class BreakerSwitch:
    """
    Opens and closes a circuit breaker by hand, in all processes that share it.

    `StoreAdmin.breaker` makes it. Processes notice a change within a second. The view ``breakers``
    shows the state.

    Attributes:
        name: The breaker's name.
    """

    def __init__(self, catalog: Catalog, name: str) -> None:
        check_name(name)
        self.name = name
        self._catalog = catalog

    @by_hand
    def open(self) -> None:
        """
        Fire no messages until `close` or `release`; no probe closes the breaker.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._turn(lambda state, now: state.turned(OPEN, now))

    @by_hand
    def close(self) -> None:
        """
        Fire messages until `open` or `release`, whatever share of the calls fails.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._turn(lambda state, now: state.turned(CLOSED, now))

    @by_hand
    def release(self) -> None:
        """
        Leave the breaker to itself again; if it is open, a probe is due at once.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._turn(BreakerState.released)

    @by_hand
    def forget(self) -> None:
        """
        Remove what the catalog knows of the breaker, as if it had never opened.

        A handler that has it goes on, and it opens again when too many calls fail.

        Raises:
            CatalogUnavailable: The catalog cannot be reached.
        """
        self._catalog.write(noting(lambda connection: forget(connection, self.name)))

    def _turn(self, transition: _Transition) -> None:
        self._catalog.write(
            noting(lambda connection: _change(connection, self.name, transition, None))
        )

    @property
    def _subject(self) -> Subject:
        # By default, a breaker has the name of its queue.
        with self._catalog.read() as connection:
            queue = self.name if queues.named(connection, [self.name]) else None
        return Subject(self._catalog, queue, {"breaker": self.name})

    def __repr__(self) -> str:
        return f"<BreakerSwitch of {self.name!r}>"


def all_states(connection: Connection) -> Sequence[RowMapping]:
    """Return the rows of all breakers that have opened, or were turned by hand, in order."""
    return connection.execute(select(breakers).order_by(breakers.c.name)).mappings().all()


def opened(connection: Connection) -> Sequence[RowMapping]:
    """Return the rows of breakers that are not closed."""
    return [row for row in all_states(connection) if row["state"] != CLOSED]


def forget(connection: Connection, name: str) -> None:
    """Remove the state of a breaker."""
    connection.execute(delete(breakers).where(breakers.c.name == name))


def _change(
    connection: Connection, name: str, transition: _Transition, consumer: str | None
) -> bool:
    """Make a transition, one process after another; return whether it was possible."""
    query = select(breakers).where(breakers.c.name == name).with_for_update()
    row = connection.execute(query).first()
    if row is None and transition(BreakerState(), 0) is not None:
        # Another process may be faster.
        fresh = {"state": CLOSED, "forced": False, "since_at": 0, "pause": 0, "opened": 0}
        insert = dialect.insert_new(connection, breakers).values(name=name, **fresh)
        connection.execute(insert.on_conflict_do_nothing())
        row = connection.execute(query).one()
    new = None if row is None else transition(_state(row), dialect.read_clock(connection))
    if new is None:
        return False
    values = dict(zip(_COLUMNS, astuple(new), strict=True))
    by = {} if consumer is None else {"consumer": consumer}
    connection.execute(update(breakers).where(breakers.c.name == name).values(**values, **by))
    return True


def _state(row: Row[Any]) -> BreakerState:
    return BreakerState(*(getattr(row, name) for name in _COLUMNS))
