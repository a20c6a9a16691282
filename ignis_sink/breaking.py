"""The circuit breaker of a query: its driver notes at each commit how many calls failed.

Changes: a row of `queue_core.catalog.records.breakers`, only if the breaker opens or closes.
Crash: the windows of calls are lost, so the breaker opens a few calls later.
"""

from __future__ import annotations

from collections.abc import Iterable

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import breakers
from queue_core.handling.breakers.breaker import WHOLE, Breaker
from queue_core.handling.breakers.keys import is_too_long
from queue_core.handling.breakers.states import PROBING
from queue_core.handling.breakers.tallies import Tally, merged
from queue_core.handling.breakers.windows import Windows

#: The last calls, by the catalog and the name of the breaker: Spark commits many batches in one
#: process, and each time with another writer.
_windows: dict[tuple[str, str], Windows] = {}


def report(
    catalog: Catalog,
    breaker: Breaker,
    name: str,
    consumer: str,
    tasks: Iterable[dict[str, Tally]],
) -> None:
    """Open or close a breaker by the calls of some tasks."""
    with catalog.read() as connection:
        known = breakers.read(connection, name)
    windows = _windows.setdefault((catalog.url, name), Windows(breaker.share, breaker.of))
    for key, tally in merged(tasks).items():
        place = WHOLE if WHOLE in known.stopped else key
        if place in known.stopped:
            windows.clear(key)
            if known.states[place].state == PROBING:
                _note_probe(catalog, breaker, name, place, tally, consumer)
        elif windows.note_many(key, tally.calls, tally.failures) or tally.tripped:
            windows.clear(key)
            if not known.exempt & {key, WHOLE} and not is_too_long(key):
                _trip(catalog, breaker, name, key, consumer)


def _note_probe(
    catalog: Catalog, breaker: Breaker, name: str, key: str, tally: Tally, consumer: str
) -> None:
    failed = tally.failures > 0 if tally.calls else None
    catalog.write(
        lambda connection: breakers.probed(connection, name, key, breaker, failed, consumer)
    )


def _trip(catalog: Catalog, breaker: Breaker, name: str, key: str, consumer: str) -> None:
    catalog.write(lambda connection: breakers.trip(connection, name, key, breaker, consumer))
