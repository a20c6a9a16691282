"""Publish a load: open its queue, and load the staged segments of its tasks in one transaction."""

from __future__ import annotations

import logging
from dataclasses import replace

from ignis_sink.message import LoadMessage, Target, check_first
from ignis_sink.options import SinkOptions
from ignis_sink.planning import check_queue, find_queue
from queue_core.catalog import queues
from queue_core.catalog.identity.handle import StoreHandle, known_store
from queue_core.errors import Conflict, NoSuchQueue, NoSuchStore
from queue_core.segments.staging_spec import StagingSpec
from queue_core.values.model import Batch, QueueInfo, Staged
from queue_core.values.schema import deserialize
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting import publish as blocking

_log = logging.getLogger(__name__)


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
        check_first(error, batch, spec.queue)
        queue = _create(spec, options, with_store=isinstance(error, NoSuchStore))
    store = known_store(options.address)
    check_queue(queue, options)
    if options.merge_schema and not set(spec.schema.names) <= set(queue.schema.names):
        queue = store.catalog.write(
            lambda connection: queues.add_columns(connection, queue, spec.schema), grows=True
        )
    _check_shape(store, queue, spec)
    return store, queue


def _create(spec: StagingSpec, options: SinkOptions, *, with_store: bool) -> QueueInfo:
    """Create a queue, after its store if that is new, or was removed since it was opened."""
    # Not at the top: they import each verb, and most batches create nothing.
    from queue_core.queue.creating import create
    from queue_core.store import Store

    if with_store:
        # The tasks of a first write stage segments before the store exists.
        Store(options.address, leftovers=True).close()
    return create(
        known_store(options.address).catalog,
        spec.queue,
        spec.schema,
        spec.shards,
        spec.key,
        options.of_new_queue,
        exist_ok=True,
    )


def _check_shape(store: StoreHandle, queue: QueueInfo, spec: StagingSpec) -> None:
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
    queue: QueueInfo,
    staged: list[Staged],
    options: SinkOptions,
    batch: Batch | None,
) -> None:
    """
    Load staged segments in one transaction, unless their batch was loaded before.

    Raises `BadOption` if the queue's settings have changed so that they contradict the options.
    """
    while True:
        try:
            return _publish(store, queue, staged, options, batch)
        except queues.SettingsChanged:
            with store.catalog.read() as connection:
                queue = queues.present(connection, queue)
            check_queue(queue, options)


def _publish(
    store: StoreHandle,
    queue: QueueInfo,
    staged: list[Staged],
    options: SinkOptions,
    batch: Batch | None,
) -> None:
    catalog, storage = store.catalog, store.storage
    on_full = OnFull(overflow=options.on_full, timeout=options.timeout)
    info = replace(queue, settings=options.applied_to(queue.settings))
    is_new = True
    if info.settings.policy is not None or info.settings.dedup:
        # Not at the top: most queues have neither, and their sinks need not wait for the imports.
        from queue_core.waiting.smart.decide import LoadPolicy
        from queue_core.waiting.smart.load import load_staged

        policy = LoadPolicy.of(info)
        assert policy is not None
        is_new = load_staged(catalog, storage, info, policy, staged, on_full, batch)
    elif batch is not None:
        is_new = blocking.publish_once(catalog, storage, info, staged, batch, on_full)
    else:
        blocking.publish(catalog, storage, info, staged, on_full)
    what = "a write" if batch is None else f"query {batch.query_id}, batch {batch.number}"
    if is_new:
        rows = sum(segment.rows for segment in staged)
        _log.info("queue %s: loaded the %d rows of %s", info.name, rows, what)
    else:
        _log.info("queue %s: %s was loaded before, and is not loaded again", info.name, what)


def in_turn(tasks: list[LoadMessage], turn: int, shards: int) -> list[Staged]:
    """Return the segments of all tasks. Without a key, tasks take the shards in turn."""
    return [
        segment.in_shard((turn + number) % shards)
        for number, task in enumerate(tasks)
        for segment in task.staged
    ]
