"""Output: tasks stage the rows that a handler returns, and the commit settles and loads at once.

Changes: those of a settlement and of a load, in one transaction. Guard: a batch is recorded as
settled, and a batch that was settled before loads nothing. Rows of messages that are not held any
more are left out. Crash before the commit: files that no slice names, which vacuum removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ignis_sink.message import StagedOutput, Target
from ignis_sink.options import SinkOptions
from queue_core.errors import BadOption
from queue_core.handling.output import unpacked
from queue_core.segments.stager import Stager
from queue_core.segments.staging_spec import StagingSpec
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.ids import IdSet
from queue_core.values.model import Batch, Consumer, QueueInfo, Staged
from queue_core.values.outcomes import Settlement
from queue_core.values.rows import Numbers, Rows
from queue_core.values.schema import conform

if TYPE_CHECKING:
    from sqlalchemy import Connection


def find_output(options: SinkOptions) -> Target | None:
    """Return the target of the rows of a settlement, if there is one; raises `NoSuchQueue`."""
    if options.output is None:
        return None
    # Not at the top: executors import this module and need no SQL library.
    from queue_core.catalog import queues
    from queue_core.catalog.identity.handle import known_store

    store = known_store(options.address)
    with store.catalog.read() as connection:
        info, _ = queues.find_magazine(connection, options.output)
    if info.name != options.output or info.settings.is_rendezvous:
        raise BadOption(
            f"output={options.output!r}: the rows of a handler can be loaded neither into a "
            "sideline nor into a queue that keeps no messages (max_size=0)"
        )
    spec = StagingSpec.of(info)
    return Target(storage=options.address.storage, spec=spec, store=store.storage.identity)


def stage_output(data: Iterable[bytes], target: Target) -> StagedOutput | None:
    """On an executor: stage the rows that a handler has returned; None for none."""
    storage = Storage.open(target.storage).of_store(target.store)
    stager = Stager(storage, target.spec, keep_order=True)
    ids = []
    try:
        for each in data:
            rows = unpacked(each)
            ids.append(rows.column("_message_id").to_numpy())
            table = conform(rows, target.spec.schema, target.spec.queue, mends=True)
            for batch in table.combine_chunks().to_batches():
                stager.add(batch)
        staged = stager.finish()
    except BaseException:
        stager.discard()
        raise
    if not ids or not staged:
        return None
    of_rows = np.empty(sum(map(len, ids)), np.int64)
    of_rows[np.concatenate(stager.order)] = np.concatenate(ids)
    faults.point("sink.staged")
    return StagedOutput(staged, of_rows)


def settle_and_load(
    options: SinkOptions,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    consumer: Consumer | None,
    batch: Batch | None,
    outputs: Sequence[StagedOutput],
) -> int:
    """Settle, and load the rows in the same transaction; return how many messages were held."""
    from queue_core.catalog.identity.handle import known_store
    from queue_core.catalog.queues import SettingsChanged, present
    from queue_core.verbs.settle import RowsOfLost, SettledBefore, settle, settle_before_load

    store = known_store(options.address)
    target = find_output(options)
    assert target is not None
    with store.catalog.read() as connection:
        output = _find(connection, target.spec.queue)
    turn = 0 if batch is None else batch.number * len(outputs)
    staged, ids = [], []
    for number, task in enumerate(outputs):
        first = 0
        for segment in task.staged:
            staged.append(segment.in_shard((turn + number) % output.shards))
            ids.append(task.ids[first : first + segment.rows])
            first += segment.rows
    lost = np.empty(0, np.int64)

    def first_settle(connection: Connection) -> None:
        nonlocal lost
        lost = settle_before_load(
            connection, queues, settlement, consumer, options.retry, output, np.concatenate(ids),
            batch,
        )  # fmt: skip

    while staged:
        try:
            _load(options, output, staged, first_settle)
        except SettingsChanged:
            with store.catalog.read() as connection:
                output = present(connection, output)
        except SettledBefore:
            return 0
        except RowsOfLost as error:
            settlement = _without(settlement, IdSet.of(error.lost))
            staged, ids = _narrowed(staged, ids, error.lost)
        else:
            return len(settlement) - len(lost)
    return settle(store.catalog, queues, settlement, consumer, batch, options.retry)


def _find(connection: Connection, name: str) -> QueueInfo:
    from queue_core.catalog.queues import find_magazine

    return find_magazine(connection, name)[0]


def _load(
    options: SinkOptions,
    output: QueueInfo,
    staged: Sequence[Staged],
    first: Callable[[Connection], None],
) -> None:
    from queue_core.catalog.identity.handle import known_store
    from queue_core.verbs.capacity.bounds import OnFull
    from queue_core.waiting.publish import publish
    from queue_core.waiting.smart.decide import LoadPolicy
    from queue_core.waiting.smart.load import load_staged

    store, on_full = known_store(options.address), OnFull(timeout=options.timeout)
    policy = LoadPolicy.of(output)
    if policy is None:
        publish(store.catalog, store.storage, output, staged, on_full, first)
    else:
        load_staged(store.catalog, store.storage, output, policy, staged, on_full, None, first)


def _without(settlement: Settlement, lost: IdSet) -> Settlement:
    return replace(
        settlement,
        deleted=settlement.deleted - lost,
        sidelined=settlement.sidelined - lost,
        reloaded=settlement.reloaded - lost,
        unhandled=settlement.unhandled - lost,
    )


def _narrowed(
    staged: Sequence[Staged], ids: Sequence[Numbers], lost: Numbers
) -> tuple[list[Staged], list[Numbers]]:
    """Return the segments without the rows of lost messages."""
    left, theirs = [], []
    for segment, of_rows in zip(staged, ids, strict=True):
        kept = ~np.isin(of_rows, lost)
        narrowed = segment.narrowed(Rows.of_numbers(np.flatnonzero(kept))) if kept.any() else None
        if narrowed is not None and narrowed.messages:
            left.append(narrowed)
            # Those that are left out have no message that could be lost again.
            theirs.append(np.where(kept, of_rows, -1))
    return left, theirs
