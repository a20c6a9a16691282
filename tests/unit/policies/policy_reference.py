"""Herzner's loop, message by message, as plainly as it can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from queue_core.policies.aggregates import Take
from queue_core.policies.decisions import Decision

Row = dict[str, Any]


@dataclass
class Entry:
    """A message in the queue."""

    row: Row
    shard: int = 0
    retrieved: bool = False
    #: The name of the message in a test.
    name: Any = None


#: Decides about a new message and an entry, given their distance.
Ask = Callable[[Row, Entry, int], Decision]


def put(queue: list[Entry], new: Entry, key: str, ask: Ask, order: str = "newest") -> None:
    """Put a new message into the queue by Herzner's rule."""
    same = [entry for entry in queue if entry.row[key] == new.row[key]]
    if order == "newest":
        same.reverse()
    elif order == "retrieved first":
        same.sort(key=lambda entry: not entry.retrieved)
    for entry in same:
        decision = ask(new.row, entry, _distance(queue, entry))
        if decision is Decision.DONT_CARE:
            continue
        if decision.deletes:
            queue.remove(entry)
        if decision.queues:
            queue.append(new)
        return
    queue.append(new)


def _distance(queue: list[Entry], entry: Entry) -> int:
    at = next(index for index, other in enumerate(queue) if other is entry)
    return sum(not other.retrieved and other.shard == entry.shard for other in queue[at + 1 :])


def latest(new: Row, entry: Entry, distance: int) -> Decision:
    return Decision.DONT_CARE if entry.retrieved else Decision.QUEUE_AND_DELETE


def drop_duplicates(names: Iterable[str]) -> Ask:
    def ask(new: Row, entry: Entry, distance: int) -> Decision:
        alike = all(new[name] == entry.row[name] for name in names)
        return Decision.IGNORE if alike and not entry.retrieved else Decision.DONT_CARE

    return ask


def merge(takes: Iterable[Take]) -> Ask:
    def ask(new: Row, entry: Entry, distance: int) -> Decision:
        if entry.retrieved:
            return Decision.DONT_CARE
        entry.row = entry.row | {t.column: _taken(t, entry.row, new) for t in takes}
        return Decision.IGNORE

    return ask


def merge_adjacent(takes: Iterable[Take]) -> Ask:
    def ask(new: Row, entry: Entry, distance: int) -> Decision:
        if entry.retrieved:
            return Decision.DONT_CARE
        return merge(takes)(new, entry, distance) if distance == 0 else Decision.QUEUE

    return ask


def annihilate(on: Callable[[Row], bool], off: Callable[[Row], bool]) -> Ask:
    def ask(new: Row, entry: Entry, distance: int) -> Decision:
        waits = on(entry.row) and not off(entry.row) and not entry.retrieved
        return Decision.IGNORE_AND_DELETE if off(new) and waits else Decision.DONT_CARE

    return ask


def confirm(condition: Callable[[Row], bool]) -> Ask:
    def ask(new: Row, entry: Entry, distance: int) -> Decision:
        meets = condition(new) and not condition(entry.row)
        return Decision.IGNORE_AND_DELETE if meets else Decision.DONT_CARE

    return ask


def _taken(take: Take, old: Row, new: Row) -> Any:
    mine, its = old[take.column], new[take.column]
    if take.function == "first":
        return mine
    if take.function == "last":
        return its
    if take.function == "count":
        return (1 if mine is None else mine) + 1
    if mine is None or its is None:
        return its if mine is None else mine
    return {"sum": lambda a, b: a + b, "min": min, "max": max}[take.function](mine, its)
