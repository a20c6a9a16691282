"""The results of an ensemble's journals: the counts of messages, and their order."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tests.counts import Counts
from tests.processes.ensemble import Ensemble
from tests.processes.roles import KEYS, SWEEP_AFTER

#: A message, by its loader and its number.
Message = tuple[int, int]


@dataclass(frozen=True)
class Delivery:
    """A message was handed out."""

    consumer: str
    ticket: int
    at: int
    place: int


def count(ensemble: Ensemble) -> Counts:
    """The seven counts, from the journals alone."""
    attempted = {
        (entry["loader"], entry["first"] + i)
        for entry in ensemble.entries("loading")
        for i in range(entry["count"])
    }
    acknowledged = {
        (entry["loader"], entry["first"] + i)
        for entry in ensemble.entries("loaded")
        for i in range(len(entry["ids"]))
    }
    names = names_of(ensemble)
    settled = {names[i] for entry in ensemble.entries("settling") for i in entry["delete"]}
    seen = deliveries(ensemble)
    return Counts(
        attempt=len(attempted),
        acknowledged=len(acknowledged),
        ok=len(settled & attempted),
        lost=len(acknowledged - settled),
        unexpected=len(seen.keys() - attempted),
        duplicated=len(repeated_for_no_reason(ensemble, seen)),
        recovered=len(settled & attempted - acknowledged),
    )


def names_of(ensemble: Ensemble) -> dict[int, Message]:
    """Which message each message id is; no id may be two."""
    names: dict[int, Message] = {}
    for entry in ensemble.entries("loaded"):
        for i, id_ in enumerate(entry["ids"]):
            name = entry["loader"], entry["first"] + i
            assert names.setdefault(id_, name) == name, f"{id_} was given twice"
    for entry in ensemble.entries("fired"):
        told = zip(entry["loaders"], entry["numbers"], strict=True)
        for id_, name in zip(entry["ids"], told, strict=True):
            assert names.setdefault(id_, name) == name, f"{id_} was another message"
    return names


def deliveries(ensemble: Ensemble) -> dict[Message, list[Delivery]]:
    """When each message was handed out, the first time first."""
    found: dict[Message, list[Delivery]] = defaultdict(list)
    for entry in ensemble.entries("fired"):
        for place, name in enumerate(zip(entry["loaders"], entry["numbers"], strict=True)):
            delivery = Delivery(entry["consumer"], entry["ticket"], entry["at"], place)
            found[name].append(delivery)
    for several in found.values():
        several.sort(key=lambda delivery: delivery.at)
    return found


def repeated_for_no_reason(ensemble: Ensemble, seen: dict[Message, list[Delivery]]) -> set[Message]:
    """Handed out again without a reload or a shovel, and too soon for a sweep."""
    names = names_of(ensemble)
    returned = Counter(
        names[id_]
        for entry in ensemble.entries("settling")
        for id_ in (*entry["sideline"], *entry["reload"])
    )
    soon = SWEEP_AFTER * 1e6
    return {
        name
        for name, several in seen.items()
        if sum(after.at - before.at < soon for before, after in pairwise(several)) > returned[name]
    }


def check_order(ensemble: Ensemble) -> int:
    """
    Messages of one key that were fired once came in the order in which they were loaded.

    Returns how many were compared with their predecessor. Not for an ensemble with kills: nobody
    has written down what a process had fired when it was killed.
    """
    names = names_of(ensemble)
    unseen = {names[id_] for entry in ensemble.entries("unseen") for id_ in entry["ids"]}
    by_key: dict[tuple[int, int], list[tuple[Message, Delivery]]] = defaultdict(list)
    for (loader, number), several in sorted(deliveries(ensemble).items()):
        if len(several) == 1 and (loader, number) not in unseen:
            by_key[loader, number % KEYS].append(((loader, number), several[0]))
    compared = 0
    for ordered in by_key.values():
        for (before, first), (after, second) in pairwise(ordered):
            assert first.at <= second.at, f"{after} was fired before {before}"
            if (first.consumer, first.ticket) == (second.consumer, second.ticket):
                assert first.place < second.place, f"{after} came before {before}"
            compared += 1
    return compared
