"""Publish a load: open its queues, and load what its tasks have staged in one transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ignis_sink.message import LoadMessage, Target, check_first
from ignis_sink.options import SinkOptions
from ignis_sink.planning import check_queue, find_queue
from queue_core.catalog import queue_changes, queues
from queue_core.catalog.identity.handle import StoreHandle, known_store
from queue_core.catalog.records import publications
from queue_core.errors import Conflict, NoSuchQueue, NoSuchStore
from queue_core.values.model import Batch, QueueInfo, Staged
from queue_core.values.names import listed
from queue_core.values.schema import deserialize
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting.publish import Routed, RoutedLoad, check_several
from queue_core.waiting.smart.load import of_staged

_log = logging.getLogger(__name__)


def publish_tasks(
    target: Target,
    tasks: list[LoadMessage],
    options: SinkOptions,
    turn: int,
    batch: Batch | None,
) -> None:
    """
    Load what all tasks have staged, in one transaction, unless their batch was loaded before.

    With routes, queues that do not exist are created from the template. *turn*: the number of the
    first task, which picks the shards of rows without a key.
    """
    routed = target.routes is not None
    names = sorted({name for task in tasks for name in task.staged}) if routed else [*target.specs]
    staged, specs = {}, {name: target.spec_of(name) for name in names}
    for name in names:
        parts = [task.staged.get(name, ()) for task in tasks]
        staged[name] = in_turn(parts, turn, specs[name].shards)
    if routed:
        if not names and batch is None:
            return
        store = known_store(options.address)
        found = _routes(store, specs, options)
    else:
        number = 0 if batch is None or options.txn is not None else batch.number
        store, queue = open_queue(target, options, number)
        found = [queue]
    publish(store, found, staged, options, batch)


def _routes(
    store: StoreHandle, specs: Mapping[str, QueueInfo], options: SinkOptions
) -> list[QueueInfo]:
    """Return the queues as they are now, with those that are new; raises `NoSuchQueue`."""
    with store.catalog.read() as connection:
        # `named` finds no sidelines, which take no loads.
        there = queues.named(connection, [*specs, options.template or ""])
        found = {name: there[name] for name in specs if name in there}
        model = there.get(options.template or "")
        missing = [name for name in specs if name not in found]
        if missing and model is None:
            raise queues.absent(connection, missing[0])
    for name in missing:
        # Not at the top: most batches create nothing.
        from queue_core.queue.creating import create

        assert model is not None, "it was found above"
        spec, given = specs[name], json.loads(model.settings.to_json())
        found[name] = create(
            store.catalog, name, spec.schema, spec.shards, spec.key, given, exist_ok=True
        )
    for name, queue in found.items():
        check_shape(store, queue, specs[name])
    return [*found.values()]


def open_queue(
    target: Target, options: SinkOptions, batch: int = 0
) -> tuple[StoreHandle, QueueInfo]:
    """
    Return the store and the queue of a target; create both, or add columns, if needed.

    Raises `QueueExists` or `Conflict` when another process has given it a different shape, and
    `NoSuchStore` or `NoSuchQueue` if it is missing and *batch* is not the first of its query.
    """
    spec = target.spec
    try:
        queue = find_queue(options)
    except (NoSuchStore, NoSuchQueue) as error:
        check_first(error, batch, spec.name)
        queue = _create(spec, options, with_store=isinstance(error, NoSuchStore))
    store = known_store(options.address)
    check_queue(queue, options)
    if options.merge_schema and not set(spec.schema.names) <= set(queue.schema.names):
        queue = store.catalog.write(
            lambda connection: queue_changes.add_columns(connection, queue, spec.schema), grows=True
        )
    check_shape(store, queue, spec)
    return store, queue


def _create(spec: QueueInfo, options: SinkOptions, *, with_store: bool) -> QueueInfo:
    """Create a queue, after its store if that is new, or was removed since it was opened."""
    # Not at the top: they import each verb, and most batches create nothing.
    from queue_core.queue.creating import create
    from queue_core.store import Store

    if with_store:
        # The tasks of a first write stage segments before the store exists.
        Store(options.address, leftovers=True).close()
    return create(
        known_store(options.address).catalog,
        spec.name,
        spec.schema,
        spec.shards,
        spec.key,
        options.of_new_queue,
        exist_ok=True,
    )


def check_shape(store: StoreHandle, queue: QueueInfo, spec: QueueInfo) -> None:
    """Check that staged rows have the queue's schema and are in the shards of their keys."""
    schema = queue.schema
    if queue.schema_version != spec.schema_version:
        with store.catalog.read() as connection:
            older = queues.schemas_of(connection, queue.id).get(spec.schema_version)
        schema = deserialize(older) if older else None
    if schema != spec.schema or (queue.shards, queue.key) != (spec.shards, spec.key):
        raise Conflict(
            f"queue {queue.name!r} was created or changed by another process while rows were "
            "written for it; nothing was loaded: write them again"
        )


def publish(
    store: StoreHandle,
    found: Sequence[QueueInfo],
    staged: Mapping[str, Sequence[Staged]],
    options: SinkOptions,
    batch: Batch | None,
) -> None:
    """
    Load the *staged* segments of queues in one transaction, unless their batch was loaded before.

    *found*: the queues as they are known. Raises `BadOption` or `Conflict` if one changed so that
    it contradicts options or rows.
    """
    catalog, storage = store.catalog, store.storage
    on_full = OnFull(overflow=options.on_full, timeout=options.timeout)
    routed = options.queue_column is not None
    by_queue = not routed or options.txn is not None
    while True:
        if routed:
            check_several(found)
        loads = []
        for queue in found:
            info = replace(queue, settings=options.applied_to(queue.settings))
            segments = staged[queue.name]
            loads.append(Routed(info, segments, of_staged(catalog, storage, info, segments)))
        load = RoutedLoad(catalog, storage, loads, on_full, batch, by_queue=by_queue)
        try:
            loaded = load.run()
        except queues.SettingsChanged:
            found = [_present(store, queue, options) for queue in found]
            continue
        _report(store, staged, loaded or (), options, batch)
        return


def _present(store: StoreHandle, queue: QueueInfo, options: SinkOptions) -> QueueInfo:
    """Return a queue as it is now; raises as `publish` does, and `NoSuchQueue`."""
    with store.catalog.read() as connection:
        present = queues.present(connection, queue)
    if options.queue_column is None:
        check_queue(present, options)
    # A restored catalog may lack the schema of the rows.
    check_shape(store, present, queue)
    return present


def _report(
    store: StoreHandle,
    staged: Mapping[str, Sequence[Staged]],
    loaded: Collection[str],
    options: SinkOptions,
    batch: Batch | None,
) -> None:
    """Log which queues were *loaded*, and which had the batch before, or a later version."""
    what = "a write" if batch is None else f"query {batch.query_id}, batch {batch.number}"
    rows = {name: sum(part.rows for part in parts) for name, parts in staged.items()}
    left = [name for name in rows if name not in loaded]
    count = sum(rows[name] for name in left)
    if loaded:
        whole = sum(rows.values()) - count
        _log.info("queue %s: loaded the %d rows of %s", listed([*loaded]), whole, what)
    if left and options.txn is None:
        _log.info("queue %s: %s was loaded before, and is not loaded again", listed(left), what)
    elif count and batch is not None:
        with store.catalog.read() as connection:
            recorded = publications.numbers(connection, batch.query_id, left)
        _log.warning(
            "queue %s: the %d rows of txnAppId=%r, txnVersion=%d were not loaded, since version %s "
            "is recorded. Ignore this if the write ran again, as after a crash. If the checkpoint "
            "is new or an older copy, or this is another write, the rows are missing, and more "
            "will be: stop the query, and give the writer another txnAppId",
            *(listed(left), count, *(options.txn or ()), listed([*map(str, recorded)])),
        )


def in_turn(tasks: Sequence[Sequence[Staged]], turn: int, shards: int) -> list[Staged]:
    """Return the segments of all tasks. Without a key, tasks take the shards in turn."""
    return [
        segment.in_shard((turn + number) % shards)
        for number, staged in enumerate(tasks)
        for segment in staged
    ]
