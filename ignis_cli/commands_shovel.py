"""Commands that move the sideline: shovel, at once or as a job, and the jobs."""

from __future__ import annotations

import time
from typing import Any

import typer

from ignis_cli.app import AnyName, EachQueue, Last, Limit, Where, command
from ignis_cli.counting import bar, counting
from ignis_cli.display import answer, complain
from ignis_cli.invocation import BROKEN
from ignis_cli.tables import forced, say_what_expires, say_what_is_dead, show
from queue_core import Queue, Store
from queue_core.catalog.records import acts
from queue_core.errors import BadOption, NoSuchQueue, Unavailable
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.watching.wording import counted

_MAINTAIN = "Maintain"
_INSPECT = "Inspect"

#: Seconds between two looks at a job.
_LOOK_SECONDS = 0.2


@command(_MAINTAIN)
def shovel(
    queue: EachQueue,
    *,
    limit: Limit = None,
    to: str | None = None,
    where: Where = None,
    reason: str | None = None,
    rate: float | None = None,
    force: bool = False,
    dry_run: bool = False,
    wait: bool = False,
    background: bool = False,
) -> None:
    """
    Move sidelined messages back to main, or to another queue.

    With --wait or --background, this is a job: `ignis jobs` shows it, and `ignis cancel` ends it.
    The exit code is 1 if the job was cancelled, has failed, or is left to other processes, or if no
    message that fits --where or --reason was moved.

    Args:
        limit: Move at most this many messages. By default, the queue's setting shovel_limit; for a
            job, no limit.
        reason (TEXT): Only messages whose last failure has this text in its reason or fingerprint,
            in any case.
        to (QUEUE): Move them to another queue. By default, to main.
        rate: Move at most this many messages a second.
        force: Move dead messages too.
        dry_run: Count the messages and move none.
        wait: Move them as a job, and show its progress until it ends. Other processes continue it
            if this one ends early.
        background: Leave the job to processes that run side tasks.
    """
    if wait + background + dry_run > 1:
        raise BadOption("use one of --wait, --background and --dry-run")
    place = to or queue.name
    how: dict[str, Any] = {"selector": where, "rate": rate, "force": force, "to": to}
    if reason is not None:
        how["ids"] = _failed_for(queue, reason)
        acts.chosen_by(reason=reason)
    every = forced(queue, how.get("ids"), where, to)
    say_what_expires(queue.store, every)
    if wait or background:
        job = queue.start_shovel(limit, **how)
        if background:
            total = _row(queue.store, job)["total"]
            if not (total or force):
                say_what_is_dead(queue.store, every)
            answer(f"job {job} will move {counted(total)} to {place}", job=job, total=total)
        else:
            _follow(queue, job, place, chosen=bool(where or reason))
        return
    with counting("shovel", limit):
        moved = queue.shovel(limit, dry_run=dry_run, **how)
    if not (moved or force):
        say_what_is_dead(queue.store, every)
    if dry_run:
        here = f"to {to}" if to else "back to main"
        text = f"{counted(moved)} would go from the sideline of {queue.name} {here}"
        answer(text, queue=queue.name, dry_run=True, would_move=moved)
        return
    where_now = f"in {to}" if to else f"back in {queue.name}"
    answer(
        f"{counted(moved, 'message is', 'messages are')} {where_now}",
        queue=queue.name,
        shovelled=moved,
    )
    if not moved and (where or reason):
        raise typer.Exit(BROKEN)


@command(_INSPECT)
def jobs(store: Store, queue: AnyName = None, *, last: Last = 100) -> None:
    """Show the shovels that run as jobs, and their progress. A dropped queue has none."""
    shown = "job queue target state moved total rate seconds_left who begun_at error"
    show(store.view("jobs", queue), shown.split(), last=last)


@command(_MAINTAIN)
def cancel(store: Store, job: str) -> None:
    """
    Cancel a job. Messages that it has moved stay where they are.

    The exit code is 1 if the job had ended before.

    Args:
        job (JOB): Id of the job, as in ignis jobs.
    """
    cancelled = store.admin.cancel(job)
    row = _row(store, job)
    moved = f"{row['moved']:,} of {counted(row['total'])} had moved"
    before = "is cancelled" if cancelled else f"had ended before: it is {row['state']}"
    answer(f"job {job} {before}; {moved}", job=job, cancelled=cancelled, state=row["state"])
    if not cancelled:
        raise typer.Exit(BROKEN)


def _failed_for(queue: Queue, reason: str) -> Any:
    """Return the ids of messages of the sideline by the reason of their last failure."""
    # Not at the top: other commands start sooner.
    import pyarrow.compute as pc

    rows = queue.store.view("sideline", queue.name)
    has = [
        pc.fill_null(pc.match_substring(rows.column(name), reason, ignore_case=True), False)
        for name in ("reason", "fingerprint")
    ]
    return rows.filter(pc.or_(*has)).column("message_id")


def _follow(queue: Queue, job: str, place: str, *, chosen: bool) -> None:
    """Take the steps of a job here, unless another process does; *chosen*: it may match nothing."""
    try:
        row = _progress(queue, job)
    except (KeyboardInterrupt, Unavailable) as error:
        complain(f"job {job} is left to other processes; end it with: ignis cancel {job}")
        if isinstance(error, Unavailable):
            raise
        raise typer.Exit(BROKEN) from None
    figures = {name: row[name] for name in ("job", "state", "moved", "total", "error")}
    failed = f": {row['error']}" if row["error"] else ""
    moved = counted(row["moved"], "message is", "messages are")
    answer(f"job {job} is {row['state']}: {moved} in {place}{failed}", **figures)
    if row["state"] != "done" or (chosen and not row["moved"]):
        raise typer.Exit(BROKEN)


def _progress(queue: Queue, job: str) -> dict[str, Any]:
    store = queue.store
    steps = Retries(store.catalog, store.storage)
    moved, left, row = 0, 0.0, _row(store, job)
    takes = f", {row['total'] / row['rate']:,.0f} s at its rate" if row["rate"] else ""
    with bar(f"job {job}{takes}", row["total"]) as shown:
        while row["ended_at"] is None:
            time.sleep(min(left, _LOOK_SECONDS))
            _, left = steps.run([queue.name], job)
            row = _row(store, job)
            shown(row["moved"] - moved, 0)
            moved = row["moved"]
    return row


def _row(store: Store, job: str) -> dict[str, Any]:
    for row in store.view("jobs").to_pylist():
        if row["job"] == job:
            return dict(row)
    raise NoSuchQueue(f"the queue of job {job} was dropped, and the job with it")
