"""Commands that read messages of a queue elsewhere, or again: subscriptions and their places."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from typer import Argument

from ignis_cli.app import Name, Where, Yes, ask, command
from ignis_cli.display import answer
from ignis_cli.tables import show
from queue_core import Queue, Store
from queue_core.values.model import Extent
from queue_core.values.setting_texts import parse_settings
from queue_core.watching.wording import counted, size

_CHANGE = "Change"
New = Annotated[str, Argument(metavar="NAME", help="Name of the new queue.")]


@command(_CHANGE)
def subscribe(
    store: Store, name: New, queue: Name, *, start: str = "latest", set: list[str] | None = None
) -> None:
    """
    Create a subscription: a queue with the messages that are loaded into another one with a log.

    Args:
        start (PLACE): latest, earliest, a time such as 2026-07-11T08:00+02:00, or the name of a
            subscription, where that is.
        set (NAME=VALUE): A setting, such as selector='amount > 100'. Repeatable.
    """
    made = store.subscribe(name, to=queue, start=_place(start), **parse_settings(set or []))
    answer(f"queue {made.name} was created, a subscription to {queue}", queue=made.name, to=queue)


@command(_CHANGE)
def replay(
    queue: Queue,
    name: New,
    *,
    since: str | None = None,
    until: str | None = None,
    where: Where = None,
    set: list[str] | None = None,
    dry_run: bool = False,
) -> None:
    """
    Play a part of the log of a queue again, into a new queue.

    Args:
        since (TIME): Messages that were loaded at this time or later, such as
            2026-07-11T08:00+02:00. By default, all that the log has.
        until (TIME): Only messages that were loaded before this time. By default, until now.
        set (NAME=VALUE): A setting of the new queue. Repeatable.
        dry_run: Count the messages of that time, and create nothing.
    """
    part = {"since": since and _place(since), "until": until and _place(until), "selector": where}
    found = queue.replay(name, dry_run=dry_run, **part, **parse_settings(set or []))
    _tell_made(found, name, f"a replay of {queue.name}")


@command(_CHANGE)
def clone(queue: Queue, name: New, *, dry_run: bool = False) -> None:
    """
    Create a queue with the messages that wait in another one, to try something out.

    Args:
        dry_run: Count the messages, and create nothing.
    """
    _tell_made(queue.clone(name, dry_run=dry_run), name, f"a clone of {queue.name}")


@command(_CHANGE)
def snapshot(
    queue: Queue, name: str | None = None, *, keep: str = "7 days", dry_run: bool = False
) -> None:
    """
    Keep the state of a subscription, to which `ignis seek` can go back, or list what is kept.

    Args:
        name (SNAPSHOT): Name of the snapshot. By default, the snapshots are listed.
        keep (TIME): For how long.
        dry_run: Count the messages, and keep nothing.
    """
    if name is None:
        show(queue.admin.snapshots())
        return
    found = queue.admin.snapshot(name, keep, dry_run=dry_run)
    verb = "would have" if dry_run else "has"
    text = f"snapshot {name} of {queue.name} {verb} {_much(found)}"
    _tell(text, found, queue=queue.name, snapshot=name, dry_run=dry_run)


@command(_CHANGE)
def seek(
    queue: Queue, to: str, *, force: bool = False, dry_run: bool = False, yes: Yes = False
) -> None:
    """
    Move a paused subscription to another place, or back to a snapshot; its messages are removed.

    The exit code is 1 if you answer no.

    Args:
        to (PLACE): earliest, latest, a time such as 2026-07-11T08:00+02:00, or a snapshot.
        force: Also remove messages in flight.
        dry_run: Count the messages, and change nothing.
    """
    place = _place(to)
    if not (yes or dry_run):
        gone = queue.admin.seek(place, force=force, dry_run=True).removed
        ask(f"remove {counted(gone)} of {queue.name}, and move it to {to}")
    found = queue.admin.seek(place, force=force, dry_run=dry_run)
    would, lost = ("would have", "would be") if dry_run else ("has", "were")
    text = f"queue {queue.name} {would} {_much(found)}; {found.removed:,} {lost} removed"
    _tell(text, found, queue=queue.name, dry_run=dry_run, removed=found.removed)


def _place(text: str) -> str | datetime:
    """Return a time, or the name of a place."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _tell_made(found: Queue | Extent, name: str, what: str) -> None:
    if not isinstance(found, Extent):
        answer(f"queue {name} was created, {what}", queue=name)
        return
    expired = f", of which {found.expired:,} have expired" if found.expired else ""
    text = f"queue {name} would have {_much(found)}{expired}"
    _tell(text, found, queue=name, dry_run=True, expired=found.expired)


def _tell(text: str, found: Extent, **more: Any) -> None:
    answer(text, **more, messages=found.messages, bytes=found.bytes)


def _much(found: Extent) -> str:
    return f"{counted(found.messages)}, {size(found.bytes)}"
