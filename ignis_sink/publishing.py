"""Publish a load: open its queue, and load the staged segments of its tasks in one transaction."""

from __future__ import annotations

import logging
from dataclasses import replace

from ignis_sink.message import LoadMessage
from ignis_sink.options import SinkOptions
from ignis_sink.queues import check_queue, known_store, open_store
from ignis_sink.target import Target, check_first
from queue_core.catalog import queues
from queue_core.errors import Conflict, NoSuchQueue, NoSuchStore
from queue_core.queue import Queue
from queue_core.segments.staging_spec import StagingSpec
from queue_core.values.model import Batch, Staged
from queue_core.values.schema import deserialize
from queue_core.verbs.capacity.bounds import OnFull
from queue_core.waiting import publish as blocking

_log = logging.getLogger(__name__)


def open_queue(target: Target, options: SinkOptions, batch: int = 0) -> Queue:
    """
    Return the queue of a target; create it, or add columns to it, if needed.

    Raises `QueueExists` or `Conflict` when another process has given it a different shape, and
    `NoSuchStore` or `NoSuchQueue` if it is missing and *batch* is not the first of its query.
    """
    spec = target.spec
    try:
        queue = known_store(options.address).queue(spec.queue)
    except (NoSuchStore, NoSuchQueue) as error:
        check_first(error, batch, spec.queue)
        if isinstance(error, NoSuchStore):
            # The store is new, or its folder was removed since it was opened.
            open_store(options.address, create=True).close()
        queue = known_store(options.address).create_queue(
            spec.queue,
            spec.schema,
            shards=spec.shards,
            key=spec.key,
            exist_ok=True,
            **options.of_new_queue,
        )
    check_queue(queue.info, options)
    if options.merge_schema and not set(spec.schema.names) <= set(queue.schema.names):
        queue.admin.add_columns(spec.schema)
    _check_shape(queue, spec)
    return queue


def _check_shape(queue: Queue, spec: StagingSpec) -> None:
    """Check that staged rows have the queue's schema and are in the shards of their keys."""
    info = queue.info
    schema = info.schema
    if info.schema_version != spec.schema_version:
        with queue.store.catalog.read() as connection:
            older = queues.schemas_of(connection, info.id).get(spec.schema_version)
        schema = deserialize(older) if older else None
    if schema != spec.schema or (info.shards, info.key) != (spec.shards, spec.key):
        raise Conflict(
            f"queue {info.name!r} was created or changed by another process while rows were "
            "written for it; nothing was loaded: write them again"
        )


def publish(queue: Queue, staged: list[Staged], options: SinkOptions, batch: Batch | None) -> None:
    """
    Load staged segments in one transaction, unless their batch was loaded before.

    Raises `BadOption` if the queue's settings have changed so that they contradict the options.
    """
    while True:
        try:
            return _publish(queue, staged, options, batch)
        except queues.SettingsChanged:
            check_queue(queue.refresh().info, options)


def _publish(queue: Queue, staged: list[Staged], options: SinkOptions, batch: Batch | None) -> None:
    # Most queues have no policy, and their sinks need not wait for the imports of policies.
    from queue_core.waiting.smart.decide import LoadPolicy
    from queue_core.waiting.smart.load import load_staged

    catalog, storage = queue.store.catalog, queue.store.storage
    on_full = OnFull(overflow=options.on_full, timeout=options.timeout)
    info = replace(queue.info, settings=options.applied_to(queue.info.settings))
    policy = LoadPolicy.of(info)
    is_new = True
    if policy is not None:
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
