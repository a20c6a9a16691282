"""What came out of a copy, counted at any time, and what must hold at its end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core import Queue, Store
from tests.crash.spark.scene import SCHEMA, Scene, numbered
from tests.referee import Counts


def count(scene: Scene) -> Counts:
    """Count at any time, without taking: messages that are not out yet must still be in."""
    with scene.store() as store:
        outs = {name: store.queue(name).browse().select(SCHEMA.names) for name in scene.outs}
        still_in = np.concatenate([_numbers(table) for table in _magazines(store.queue("in"))])
    return _counts(scene, outs, still_in)


def at_the_end(scene: Scene, *, rescued: bool = False) -> tuple[Counts, list[str]]:
    """
    Take everything from `out`: the counts, and whatever is not as it must be.

    *rescued*: messages were swept or given back, and so come after later ones of their key.
    """
    with scene.store() as store:
        wrong = [*_left_in(store, scene), *strays(store)]
        fired = {name: store.queue(name).fire("all") for name in scene.outs}
        outs = {name: each.messages.select(SCHEMA.names) for name, each in fired.items()}
        if not rescued and (disorder := _disorder(pa.concat_tables(outs.values()))):
            wrong.append(f"{disorder} messages came out before an earlier one of their key")
        still_in = np.concatenate([_numbers(table) for table in _magazines(store.queue("in"))])
        for name, firing in fired.items():
            store.queue(name).delete(firing)
        store.admin.vacuum(grace=0)
        if files := store.storage.list():
            wrong.append(f"{len(files)} files are left of queues in which no message is")
    counts = _counts(scene, outs, still_in)
    if counts.delivered != scene.messages:
        wrong.append(f"{scene.messages - counts.delivered} messages did not come out")
    if not counts.right:
        wrong.append(f"not exactly once: {counts}")
    return counts, wrong


def _counts(scene: Scene, outs: dict[str, pa.Table], still_in: np.ndarray) -> Counts:
    out = pa.concat_tables(outs.values())
    number = out.column("number")
    known = out.filter(pc.and_(pc.greater_equal(number, 0), pc.less(number, scene.messages)))
    copies = np.bincount(_numbers(known), minlength=scene.messages)
    there = np.zeros(scene.messages, dtype=bool)
    there[still_in] = True
    came = copies > 0
    return Counts(
        attempted=scene.messages,
        acknowledged=int(scene.acknowledged.sum()),
        delivered=int(came.sum()),
        lost=int((scene.acknowledged & ~came & ~there).sum()),
        unexpected=len(out) - len(known) + altered(known) + _astray(scene, outs),
        duplicated=int((copies[came] - 1).sum()),
        recovered=int((came & ~scene.acknowledged).sum()),
    )


def altered(known: pa.Table) -> int:
    """How many messages carry a number that was loaded, and something else besides."""
    expected = numbered(_numbers(known))
    same = pc.and_(
        *(pc.equal(known.column(name), expected.column(name)) for name in ("customer", "payload"))
    )
    return len(known) - int(pc.sum(same).as_py() or 0)


def _astray(scene: Scene, outs: dict[str, pa.Table]) -> int:
    """How many messages are in another queue than that to which their customer leads."""
    return sum(
        int((pc.cast(table.column("customer"), pa.int64()).to_numpy() % scene.routes != n).sum())
        for n, table in enumerate(outs.values())
        if scene.routes
    )


def _disorder(out: pa.Table) -> int:
    """How many messages come after a later one of the same key."""
    customers = out.column("customer").combine_chunks().dictionary_encode().indices.to_numpy()
    by_customer = np.argsort(customers, kind="stable")
    falls = np.diff(_numbers(out)[by_customer]) <= 0
    same = customers[by_customer][1:] == customers[by_customer][:-1]
    return int((falls & same).sum())


def _left_in(store: Store, scene: Scene) -> Iterator[str]:
    """The rest of `in`, which must be empty, with all messages accounted for."""
    totals = store.queue("in").metadata()
    for name in ("waiting", "in_flight", "damaged"):
        if total := sum(totals.column(name).to_pylist()):
            yield f"in: {name} = {total}"
    deleted = sum(totals.column("deleted").to_pylist())
    if deleted != scene.messages:
        yield f"in: deleted = {deleted}, not {scene.messages}"
    held = store.view("consumers").column("in_flight").to_pylist()
    if any(held):
        yield f"consumers hold {sum(held)} messages"


def strays(store: Store) -> Iterator[str]:
    """Files that no slice names after a vacuum, and the other way round."""
    store.admin.vacuum(grace=0)
    files = set(store.storage.list())
    named = set(store.view("slices").column("location").drop_null().to_pylist())
    if strays := files - named:
        yield f"{len(strays)} files that no slice names: {min(strays)}"
    if missing := named - files:
        yield f"{len(missing)} files are gone: {min(missing)}"


def _magazines(queue: Queue) -> Iterator[pa.Table]:
    for magazine in ("main", "sideline"):
        yield queue.browse(magazine=magazine)


def _numbers(table: pa.Table) -> np.ndarray:
    return table.column("number").to_numpy()
