"""Decide whether the catalog's clock can be trusted, before tasks remove old messages.

Changes: for each machine, by the id of its boot, the table `clocks` records the catalog's time and
the machine's own stopwatch at the last look. Guard: between two looks of one machine, the catalog's
time must not advance further than the stopwatch, which changes of the clock do not affect. A
machine that has just booted cannot compare stopwatches. It accepts a gap of up to `GAP_SECONDS`
since the last look of any machine, and otherwise waits until the clock has run steadily for
`STEADY_SECONDS`; so do machines that come meanwhile. An operator can accept the present time.
"""

from __future__ import annotations

import time
import uuid
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.holders import leases
from queue_core.catalog.tables import clocks
from queue_core.errors import CatalogUnavailable

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog

#: The two may differ by these seconds, and by this part of the elapsed time.
MARGIN_SECONDS = 60.0
MARGIN_PART = 0.01
#: The gap that a freshly booted machine accepts: shorter than a usual `message_expiry`.
GAP_SECONDS = 36 * 3600.0
#: How long the clock must run steadily after a longer gap.
STEADY_SECONDS = 3600.0
#: How often a look is written down, and how long one is kept.
WRITTEN_SECONDS = 30.0
KEPT_SECONDS = 30 * 24 * 3600.0

_SECOND = 1_000_000
#: With the time: one statement, because firings may wait meanwhile.
_MINE = select(clocks, dialect.now().label("now")).where(clocks.c.host == bindparam("mine"))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def check(catalog: Catalog) -> None:
    """
    Raise `CatalogUnavailable` if the catalog's clock may have jumped ahead.

    If it was set back, correct the signs of life that it left in the future (`leases.correct`).
    """

    def work(connection: Connection) -> str | None:
        # Not in `look`: a producer looks before it expires messages, and may not change these rows.
        leases.correct(connection)
        return look(connection)

    _raise(catalog.write(work))


def confirm(connection: Connection) -> None:
    """
    Raise `CatalogUnavailable`, and so roll back, if the clock has jumped ahead since `check`.

    It is the last step of a transaction that removes old messages, so no time that the transaction
    has seen is later than the time that is compared here.
    """
    mine = connection.execute(_MINE, {"mine": _host()}).first()
    if mine is not None:
        _check_numbers(mine)
        _raise(_jump(mine, int(mine.now), stopwatch()))


def accept(connection: Connection) -> None:
    """
    Believe the present time, whatever was seen before.

    It deletes all rows of `clocks`. In PostgreSQL, only operators have the right to do so.
    """
    connection.execute(delete(clocks))
    connection.execute(insert(clocks).values(_seen(dialect.read_clock(connection), 0)))


def look(connection: Connection) -> str | None:
    """Compare the clocks, and write the look down; return the reason for a doubt, if any."""
    now = dialect.read_clock(connection)
    rows = {row.host: row for row in connection.execute(select(clocks))}
    for row in rows.values():
        _check_numbers(row)
    mine = rows.pop(_host(), None)
    watch = stopwatch()
    if mine is None:
        newest = max((row.catalog_at for row in rows.values()), default=now)
        steady = _micros(STEADY_SECONDS)
        # For how long machines that looked before this one are still in doubt.
        rests = [
            row.catalog_at + row.steady_at - row.host_at - now
            for row in rows.values()
            if row.steady_at > row.host_at
        ]
        rest = steady if now - newest > _micros(GAP_SECONDS) else min(max(rests, default=0), steady)
        steady_at = watch + rest if rest > 0 else 0
        new = dialect.insert_new(connection, clocks).values(_seen(now, steady_at))
        connection.execute(new.on_conflict_do_nothing())
    else:
        steady_at = mine.steady_at
        here = clocks.c.host == mine.host
        jump = _jump(mine, now, watch)
        if jump is not None:
            if mine.jumped_at is None:
                connection.execute(update(clocks).where(here).values(jumped_at=now))
            return jump
        if abs(now - mine.catalog_at) > _micros(WRITTEN_SECONDS) or mine.jumped_at is not None:
            seen = _seen(now, steady_at)
            # A database role may not have the right to change the host.
            del seen["host"]
            connection.execute(update(clocks).where(here).values(seen))
    # A jump that another machine saw counts until one sees that the clock was set back.
    if jumps := [row.jumped_at for row in rows.values() if row.jumped_at is not None]:
        if now >= min(jumps):
            return "another machine saw it jump ahead"
        over = leases.is_ahead(clocks.c.jumped_at)
        connection.execute(update(clocks).where(over).values(jumped_at=None))
    if watch < steady_at:
        return (
            "nobody has watched it for a long time, and it must first run steadily for another "
            f"{_shown(steady_at - watch)}"
        )
    return None


def forget(connection: Connection) -> None:
    """Remove the looks of machines that have not looked for a long time."""
    old = clocks.c.catalog_at < dialect.read_clock(connection) - _micros(KEPT_SECONDS)
    connection.execute(delete(clocks).where(old, clocks.c.host != _host()))


def _jump(seen: Row[Any], now: int, watch: int) -> str | None:
    """Say how far the clock has advanced beyond the stopwatch since this machine's last look."""
    elapsed = watch - seen.host_at
    ahead = now - seen.catalog_at - elapsed
    if ahead <= _micros(MARGIN_SECONDS) + int(elapsed * MARGIN_PART):
        return None
    return f"it has advanced {_shown(ahead)} more than the time that passed"


def _check_numbers(row: Row[Any]) -> None:
    """Raise `DamagedCatalog` for a text among the numbers, which SQLite allows."""
    with decoding(clocks, f"host {row.host!r}"):
        sum((row.catalog_at, row.host_at, row.steady_at, row.jumped_at or 0))


def _raise(doubt: str | None) -> None:
    if doubt is not None:
        raise CatalogUnavailable(
            f"the catalog's clock cannot be trusted: {doubt}; until it can, nothing is expired, "
            "swept or vacuumed. Correct the clock, or accept its time: `ignis clock --accept`"
        )


def _seen(now: int, steady_at: int) -> dict[str, int | str | None]:
    return {
        "host": _host(),
        "catalog_at": now,
        "host_at": stopwatch(),
        "steady_at": steady_at,
        "jumped_at": None,
    }


@lru_cache(maxsize=1)
def _host() -> str:
    """Return the id of this machine's boot, or of this process where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()[:64]
    except OSError:
        return uuid.uuid4().hex


def stopwatch() -> int:
    """Return microseconds that no change of a clock affects; on Linux, with times of suspension."""
    watch = getattr(time, "CLOCK_BOOTTIME", None)
    seconds = time.monotonic() if watch is None else time.clock_gettime(watch)
    return int(seconds * _SECOND)


def _micros(seconds: float) -> int:
    return int(seconds * _SECOND)


def _shown(micros: int) -> str:
    minutes = round(micros / (60 * _SECOND))
    if minutes < 120:
        return f"{minutes} minutes"
    return f"{minutes // 60} hours" if minutes < 2880 else f"{minutes // 1440} days"
