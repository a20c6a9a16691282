"""Check a store, and repair it if wanted: in a reading transaction, so that no alarm is false.

The checks are those of `queue_core.catalog.checks`. They are independent, so some run at the same
time.

Task fsck: check the store, and report what is broken. It changes only the task log, and reads no
segment unless a stream asks for it. An operator repairs: ``ignis fsck --repair``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Lock

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.checks import counters, logs, records, slices, tickets
from queue_core.catalog.checks import segments as segment_checks
from queue_core.catalog.checks.finding import Finding, report
from queue_core.catalog.checks.repair import repair as mend
from queue_core.catalog.checks.rules import Check, Scope
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import schedule
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import segments
from queue_core.errors import StorageUnavailable
from queue_core.segments.storage import Storage
from queue_core.upkeep.tasks.task import TaskContext

#: Called before each check with its name, the number of finished checks, and the number of all.
Progress = Callable[[str, int, int], None]

#: Checks that run at the same time. A database spends the time, so threads do.
THREADS = 2
#: A task of Spark reads at least so many segments.
SHARE_SEGMENTS = 1_000

_log = logging.getLogger(__name__)

#: The checks of the catalog with their shown names; long ones come first.
_CATALOG: dict[str, Check] = {
    "places": slices.check_places_once,
    "slices": slices.check_each,
    "rows": slices.check_rows_once,
    "shards": counters.check_shards,
    "slices with gaps": slices.check_texts,
    "queues": records.check_queues,
    "shared limits": records.check_shared_limits,
    "segments": segment_checks.check_owners,
    "message ids": segment_checks.check_ids,
    "logs": logs.check_logs,
    "segments of logs": logs.check_segments,
    "cursors": logs.check_cursors,
    "holders": tickets.check_holders,
    "tickets": tickets.check_tickets,
    "consumers": tickets.check_consumers,
    "interests": tickets.check_interests,
    "times": tickets.check_times,
    "records": records.check_records,
    "states of files": segment_checks.check_states,
}
#: The checks that need the storage.
_STORAGE: dict[str, Check] = {
    "files": segment_checks.check_bytes,
    "quarantine": segment_checks.check_quarantine,
}


def check(
    catalog: Catalog,
    storage: Storage,
    *,
    deep: bool,
    threads: int,
    progress: Progress | None,
    share: tuple[int, int] = (0, 1),
) -> tuple[list[Finding], dict[int, str]]:
    """
    Return what is wrong with a store, and the names of the queues at that moment.

    *share*: which share of the segments to look at, and of how many. The first share also has all
    other checks.

    Raises `CatalogUnavailable` and `StorageUnavailable`.
    """
    findings = []
    checks = dict(_CATALOG)
    stranger = _find_stranger(storage)
    if share[0]:
        checks = {} if stranger else {"files": _STORAGE["files"]}
    elif stranger is None:
        checks |= _STORAGE
    else:
        # All of its files would seem to be missing.
        findings.append(stranger)
    lock, begun = Lock(), count()

    def run(name: str) -> list[Finding]:
        with lock:
            if progress is not None:
                progress(name, next(begun), len(checks))
        with catalog.read() as connection:
            now = dialect.read_clock(connection)
            scope = Scope(connection=connection, storage=storage, deep=deep, now=now, share=share)
            return _run(name, checks[name], scope)

    with ThreadPoolExecutor(threads, "ignis-fsck") as pool:
        for found in pool.map(run, checks):
            findings += found
    with catalog.read() as connection:
        names = {row.id: row.name for row in queues.states(connection)}
        return _still_there(connection, findings), names


def _run(name: str, run: Check, scope: Scope) -> list[Finding]:
    """Return the findings of a check. A value of a wrong type ends it, and is a finding too."""
    findings = []
    try:
        for found in run(scope):
            findings.append(found)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        findings.append(
            Finding(
                invariant="I1",
                table=name,
                key=(),
                queue_id=None,
                problem=f"the check of {name} met a value of another kind, and stopped: {error}",
            )
        )
    return findings


def _still_there(connection: Connection, findings: list[Finding]) -> list[Finding]:
    """Leave out files that a vacuum has removed since, as their segments were released."""
    lost = [found for found in findings if found.invariant in ("I14", "I15")]
    if not lost:
        return findings
    ids = [int(found.key[0]) for found in lost]
    there = segments.present(connection, ids)
    gone = {id(found) for found in lost if found.key[0] not in there}
    return [found for found in findings if id(found) not in gone]


def _find_stranger(storage: Storage) -> Finding | None:
    """Return what is wrong with the storage's mark."""
    try:
        storage.check(again=True)
    except StorageUnavailable as error:
        return Finding(
            invariant="I28",
            table="storage",
            key=(storage.name,),
            queue_id=None,
            problem=str(error),
        )
    return None


def fsck(
    catalog: Catalog,
    storage: Storage,
    *,
    deep: bool = False,
    repair: bool = False,
    threads: int = THREADS,
    progress: Progress | None = None,
    share: tuple[int, int] = (0, 1),
) -> pa.Table:
    """
    Return what is wrong with a store, as rows of `FINDINGS`; *share* is as in `check`.

    Raises `CatalogUnavailable`.
    """
    before, names = check(
        catalog, storage, deep=deep, threads=threads, progress=progress, share=share
    )
    if not repair:
        return report(before, names)
    mend(catalog, before)
    after, names = check(catalog, storage, deep=deep, threads=threads, progress=progress)
    left = {found.place for found in after}
    return report(after, names, [found for found in before if found.place not in left])


def shares(context: TaskContext, _: None = None) -> int:
    """Return how many processes divide the segments among them, if they read these."""
    if not context.deep:
        return 1
    with context.catalog.read() as connection:
        return 1 + segments.count(connection) // SHARE_SEGMENTS


def run(context: TaskContext, _: None = None) -> int:
    """Return the number of broken invariants. Each is logged, and listed in the view of reports."""
    # Gently: one part after the other.
    found = fsck(
        context.catalog, context.storage, deep=context.deep, threads=1, share=context.share
    ).to_pylist()
    broken: Counter[tuple[str, str]] = Counter()
    for row in found:
        broken[row["invariant"], row["table"]] += 1
        _log.warning("%(invariant)s is broken: %(table)s %(row)s: %(problem)s", row)

    def write(connection: Connection) -> None:
        moves = Moves()
        for (invariant, table), times in broken.items():
            moves.count(None, times, f"{table}: {invariant} is broken", None)
        moves.record(connection, schedule.STORE, "fsck")

    if broken:
        context.catalog.write(write)
    return len(found)
