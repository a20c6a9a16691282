"""Which messages an action concerns: by id, by a selector, a group of the sideline, or all."""

from __future__ import annotations

import re

import pyarrow as pa

from ignis_console import sideline
from ignis_console.ask import Ask
from ignis_console.console import Console
from queue_core.errors import BadOption, Conflict
from queue_core.values.ids import IdSet
from queue_core.verbs.operator.chosen import ALL, Chosen, among, are_of_one_queue, as_of_now

#: The most ids in one form.
MOST_IDS = 10_000


def choose(
    console: Console, ask: Ask, magazine: str | None, *, all_by_default: bool = False
) -> Chosen | None:
    """
    Return the messages that a form chooses now, or None if it chooses none.

    If it names a count (``shown``), these are counted messages only. Raises `BadOption`,
    `BadOutcome` for an id of another queue, `BadSelector`, and `Conflict` for a count that the
    console has forgotten, or that is of another queue.
    """
    chosen = _choose(console, ask, magazine, all_by_default)
    shown = ask.text("shown")
    if chosen is None:
        return None
    if shown is None:
        # Messages that fail again before the action is confirmed are left alone.
        with console.store.catalog.read() as connection:
            return as_of_now(chosen, connection)
    known = console.counted.get(shown)
    if known is None or not are_of_one_queue(known, chosen):
        raise Conflict(
            "nothing was changed: the console no longer knows which messages were shown; look again"
        )
    return among(known, IdSet.of(chosen.ids))


def _choose(
    console: Console, ask: Ask, magazine: str | None, all_by_default: bool
) -> Chosen | None:
    queue = console.store.queue(ask.queue)
    ids, selector, every = ask.text("ids"), ask.text("selector"), ask.flag("all")
    if ask.flag("group"):
        if every or ask.text("magazine") == "main":
            raise BadOption("group: choose either a group of the sideline, or all, or main")
        rows = console.store.view("sideline", ask.queue)
        found = sideline.members(rows, *ask.group).column("message_id")
        members = IdSet.of(found.combine_chunks().cast(pa.int64()))
        if ids is not None:
            members &= IdSet.of(_numbers(ids))
        return queue.choose(members, selector, magazine="sideline")
    if any(ask.group):
        raise BadOption(
            "kind, fingerprint and reason choose a group of the sideline: send group=1 with them"
        )
    if every and (ids or selector):
        raise BadOption("choose either all messages, or some by id or selector")
    if not (every or ids or selector):
        return queue.choose(ALL, magazine=magazine) if all_by_default else None
    by_id = None if ids is None else _numbers(ids)
    return queue.choose(ALL if every else by_id, selector, magazine)


def _numbers(text: str) -> list[int]:
    parts = re.split(r"[\s,;]+", text.strip())
    if len(parts) > MOST_IDS:
        raise BadOption(f"there are {len(parts):,} ids; use at most {MOST_IDS:,}, or a selector")
    for part in parts:
        is_whole = part.isascii() and part.isdigit() and len(part) <= 19
        if not is_whole or int(part) >= 1 << 63:
            raise BadOption(f"message id {part[:40]!r}: use whole numbers, as in _message_id")
    return [int(part) for part in parts]
