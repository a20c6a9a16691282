"""Output: tasks stage the rows that a handler returns, and the commit settles and loads at once.

Changes: those of a settlement and of a load, in one transaction. Guard: a batch is recorded as
settled, and a batch that was settled before loads nothing. Rows of messages that are not held any
more are left out. Crash before the commit: files that no slice names, which vacuum removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ignis_sink.message import Target
from ignis_sink.options import SinkOptions
from queue_core.errors import BadOption
from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.ipc import unpack
from queue_core.values.model import Batch, Consumer, QueueInfo, StagedOutput, check_loads
from queue_core.values.outcomes import Settlement
from queue_core.values.schema import conform


def find_output(options: SinkOptions) -> Target | None:
    """Return the target of the rows of a settlement, if there is one; raises `NoSuchQueue`."""
    if options.output is None:
        return None
    # Not at the top: executors import this module and need no SQL library.
    from queue_core.catalog import queues
    from queue_core.catalog.identity.handle import known_store
    from queue_core.verbs.capacity.bounds import check_keeps
    from queue_core.waiting.settled_load import BEFORE_SETTLEMENT

    store = known_store(options.address)
    with store.catalog.read() as connection:
        info, _ = queues.find_magazine(connection, options.output)
    if info.name != options.output:
        raise BadOption(
            f"output={options.output!r}: the rows of a handler cannot be loaded into a sideline; "
            f"write output={info.name!r}"
        )
    check_loads(info)
    check_keeps(info, BEFORE_SETTLEMENT)
    specs = {info.name: info}
    return Target(storage=options.address.storage, specs=specs, store=store.storage.identity)


def stage_output(data: Iterable[bytes], target: Target) -> StagedOutput | None:
    """On an executor: stage the rows that a handler has returned; None for none."""
    storage = Storage.open(target.storage).of_store(target.store)
    stager = Stager(storage, target.spec, keep_order=True)
    ids = []
    try:
        for each in data:
            rows = unpack(each)
            ids.append(rows.column("_message_id").to_numpy())
            table = conform(rows, target.spec.schema, target.spec.name, mends=True)
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


def settle_tasks(
    options: SinkOptions,
    queues: Sequence[QueueInfo],
    settlement: Settlement,
    consumer: Consumer | None,
    batch: Batch | None,
    outputs: Sequence[StagedOutput],
    spec: QueueInfo,
) -> int:
    """
    Settle, and load the rows in the same transaction; return how many messages were held.

    *spec*: how the rows were staged. Raises `Conflict` for a queue of another shape.
    """
    from ignis_sink.publishing import check_shape, in_turn
    from queue_core.catalog.identity.handle import known_store
    from queue_core.catalog.queues import SettingsChanged, find_magazine
    from queue_core.verbs.capacity.bounds import OnFull
    from queue_core.waiting.settled_load import settle_and_load

    store, on_full = known_store(options.address), OnFull(timeout=options.timeout)
    turn = 0 if batch is None else batch.number * len(outputs)
    ids = np.concatenate([task.ids for task in outputs])
    assert options.output is not None, "tasks have staged its rows"
    while True:
        with store.catalog.read() as connection:
            output, _ = find_magazine(connection, options.output)
        check_shape(store, output, spec)
        staged = in_turn([task.staged for task in outputs], turn, output.shards)
        rows = StagedOutput(tuple(staged), ids)
        try:
            lost = settle_and_load(
                store.catalog, store.storage, queues, settlement, consumer, options.retry, output,
                rows, on_full, batch,
            )  # fmt: skip
        except SettingsChanged:
            continue
        return 0 if lost is None else len(settlement) - len(lost)
