"""Commands that run side tasks by hand, and repair damage."""

from __future__ import annotations

from typing import Any

import typer

from ignis_cli.app import EachQueue, command, duration, working
from ignis_cli.counting import counting
from ignis_cli.display import answer
from ignis_cli.invocation import BROKEN, current
from ignis_cli.tables import show
from queue_core import Store
from queue_core.catalog.holders.consumers import reserving
from queue_core.catalog.identity.clock import look
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.vacuum import GRACE_SECONDS
from queue_core.watching.holders import holding
from queue_core.watching.wording import counted, size

_MAINTAIN = "Maintain"


@command(_MAINTAIN)
def sweep(queue: EachQueue, *, older_than: str | None = None, consumer: str | None = None) -> None:
    """
    Sideline messages that were fired too long ago and never settled.

    Args:
        older_than (TIME): Time since the firing, such as 20m. By default, the queue's setting
            sweep_after; with --consumer, any time.
        consumer (CONSUMER): Sweep only messages of this dead consumer, even if they wait for the
            restart of its query. Use it for a query that will not restart.
    """
    with counting("sweep"):
        age = duration("older-than", older_than) if older_than else None
        moved = queue.sweep(age, consumer=consumer)
    with queue.store.catalog.read() as connection:
        waiting = reserving(connection, queue.info.id)
    done = "sidelined" + (", or deleted if the query had published them" if consumer else "")
    lines = [f"{counted(moved, 'stuck message', 'stuck messages')} of {queue.name} {done}"]
    lines += [
        f"{counted(count, 'message waits', 'messages wait')} for the restart of query {name}; "
        f"if it will not restart, run: ignis sweep {queue.name} --consumer {name}"
        for name, count in waiting.items()
    ]
    figures: dict[str, Any] = {"for_restart": waiting} if waiting else {}
    if not moved:
        sentences, held = holding(queue.store.catalog, queue.info, without=waiting)
        lines += sentences.values()
        figures |= {"held": held} if held else {}
    answer("\n".join(lines), queue=queue.name, swept=moved, **figures)


@command(_MAINTAIN)
def recover(store: Store) -> None:
    """Put back messages that dead consumers fired and never read."""
    with counting("recover"):
        recovered = store.admin.recover()
    answer(f"{counted(recovered, 'message waits', 'messages wait')} again", recovered=recovered)


@command(_MAINTAIN)
def vacuum(store: Store, *, dry_run: bool = False, grace: str = f"{GRACE_SECONDS:.0f}s") -> None:
    """
    Remove segment files that no message needs any more.

    Args:
        dry_run: List the files without removing them.
        grace (TIME): Keep files that are younger than this.
    """
    sizes = store.storage.sizes()
    with counting("vacuum", nouns=("file", "files")):
        removed = store.admin.vacuum(grace=duration("grace", grace), dry_run=dry_run)
    freed = sum(sizes.get(location, 0) for location in removed)
    verb = "would be removed, which would free" if dry_run else "removed, which freed"
    text = f"{counted(len(removed), 'file', 'files')} {verb} {size(freed)}"
    lines = [text, *(removed if dry_run else ())]
    answer("\n".join(lines), dry_run=dry_run, files=removed, bytes=freed)


@command(_MAINTAIN)
def forget(
    store: Store,
    consumers: list[str] | None = None,
    *,
    idle: str | None = None,
    dry_run: bool = False,
) -> None:
    """
    Remove what the catalog keeps of consumers and queries that will not come back.

    If a forgotten query starts again from its checkpoint, its sink may load its last batch a second
    time.

    Args:
        consumers ([CONSUMER]...): Dead consumers that hold no messages.
        idle (TIME): Also remove every consumer without a heartbeat, and every streaming query
            without a new batch, for this time, such as 90d.
        dry_run: List the names without removing anything.
    """
    if not consumers and idle is None:
        raise BadOption("forget: name consumers, or give --idle with a duration such as 90d")
    seconds = duration("idle", idle) if idle else None
    gone = store.admin.forget(consumers or (), idle=seconds, dry_run=dry_run)
    verb = "would be forgotten" if dry_run else "are forgotten"
    lines = [f"{len(gone):,} consumers and queries {verb}", *gone]
    answer("\n".join(lines), dry_run=dry_run, forgotten=gone)


@command(_MAINTAIN)
def repair(queue: EachQueue) -> None:
    """
    Put quarantined messages back whose segment files are restored.

    Each file is read and verified first. The exit code is 1 if files are still damaged.
    """
    with counting("repair"):
        done = queue.admin.repair()
    lines = [f"{counted(done.messages)} of {queue.name} put back"]
    lines += [
        f"{counted(each.messages, 'message stays', 'messages stay')} quarantined: {each.reason}; "
        f"{each.remedy}"
        for each in done.left
    ]
    left = [each._asdict() for each in done.left]
    answer("\n".join(lines), queue=queue.name, repaired=done.messages, left=left)
    if left:
        raise typer.Exit(BROKEN)


@command(_MAINTAIN)
def compact(queue: EachQueue) -> None:
    """Rewrite the waiting messages of small or mostly finished segments into fewer segments."""
    with counting("compact"):
        rewritten = queue.admin.compact()
    answer(f"{counted(rewritten)} of {queue.name} rewritten", queue=queue.name, compacted=rewritten)


@command(_MAINTAIN)
def expire(queue: EachQueue) -> None:
    """
    Remove waiting messages that have expired.

    A queue at the age of its queue_expiry is deactivated, and later dropped.
    """
    with counting("expire"):
        expired = queue.admin.expire()
    said = counted(expired, "expired message", "expired messages")
    answer(f"{said} of {queue.name} removed", queue=queue.name, expired=expired)


@command(_MAINTAIN)
def adopt() -> None:
    """
    Make this catalog the owner of the storage.

    Use it after a restore, a move or a loss of the catalog. First stop every process that uses
    another copy of the catalog. If you may need segments that this catalog does not know, copy them
    to another place: vacuum removes them an hour later.
    """
    with current.get().store(create=True, adopt=True) as store:
        answer(f"the catalog now owns the storage {store.storage.name}", adopted=True)


@command(_MAINTAIN)
def clock(store: Store, *, accept: bool = False) -> None:
    """
    Check whether the catalog's clock has jumped ahead; after a jump, no message expires.

    Args:
        accept: Accept the present time, even after a jump.
    """
    if accept:
        store.admin.accept_clock()
    doubt = store.catalog.write(look)
    answer(doubt or "the clock is plausible", doubt=doubt)


@command(_MAINTAIN)
def fsck(store: Store, *, deep: bool = False, repair: bool = False) -> None:
    """
    Check every invariant of the store, which may be in use.

    The exit code is 0 if the store is in order or everything was repaired, and 1 otherwise.
    docs/protocol.md lists the invariants by number.

    Args:
        deep: Also read all segments and verify their checksums.
        repair: Repair broken records where possible, and quarantine damaged messages.
    """
    with working("checking") as progress:
        found = store.admin.fsck(deep=deep, repair=repair, progress=progress)
    repaired = sum(found.column("repaired").to_pylist())
    left = found.num_rows - repaired
    if found.num_rows:
        show(found)
    broken = f"{counted(left, 'invariant is', 'invariants are')} broken"
    text = broken if left else "the store is in order"
    mended = f", and {counted(repaired, 'was', 'were')} repaired" if repaired else ""
    answer(text + mended, broken=left, repaired=repaired)
    if left:
        raise typer.Exit(BROKEN)
