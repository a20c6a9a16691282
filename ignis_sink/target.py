"""The queue that is written to: found, or about to be created; as plain values for the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ignis_sink.options import SETTINGS, SinkOptions
from queue_core import column_roles
from queue_core.address import Address
from queue_core.column_roles import described
from queue_core.errors import (
    BadOption,
    Conflict,
    NoSuchQueue,
    NoSuchStore,
    SchemaMismatch,
)
from queue_core.model import QueueInfo
from queue_core.policies import binding
from queue_core.schema import METADATA, canonical, check_insertable, deserialize, evolve
from queue_core.segments.shard_hash import check_key
from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage
from queue_core.settings import QueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How to stage rows for a queue."""

    #: Not shown, as it may have credentials.
    storage: str = field(repr=False)
    queue: str
    schema: pa.Schema
    schema_version: int
    shards: int
    key: str | None
    attributes: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    compression: str | None = None

    def stager(self) -> Stager:
        """A stager for one task."""
        return Stager(
            Storage.open(self.storage),
            self.queue,
            self.schema,
            schema_version=self.schema_version,
            shards=self.shards,
            key=self.key,
            attributes=self.attributes,
            categories=self.categories,
            compression=self.compression,
        )


def find_target(options: SinkOptions, rows: StructType) -> Target:
    """
    The target of a write of *rows*, checked before any of them is looked at.

    Raises `SchemaMismatch` or `BadOption`.
    """
    incoming = _incoming(rows)
    try:
        info = known_store(options.address).queue(options.queue).info
    except (NoSuchStore, NoSuchQueue):
        return _new_target(options, incoming)
    _refuse_rendezvous(info)
    if options.key is not None and options.key != info.key:
        raise BadOption(
            f"key={options.key!r}: queue {info.name!r} has the key {info.key!r}, and keeps it"
        )
    _check_settings(info, options)
    schema = info.schema
    added = [field for field in _nullable(incoming) if field.name not in schema.names]
    if options.merge_schema and added:
        schema = evolve(schema, pa.schema([*schema, *added]), info.name)
    check_insertable(incoming, schema, info.name)
    binding.check(by_options(info.settings, options), schema, info.key)
    return Target(
        storage=options.address.storage,
        queue=info.name,
        schema=schema,
        schema_version=info.schema_version + (not schema.equals(info.schema)),
        shards=info.shards,
        key=info.key,
        attributes=described(info.settings, schema),
        categories=info.settings.categories,
        compression=info.settings.compression,
    )


def by_options(settings: QueueSettings, options: SinkOptions) -> QueueSettings:
    """The settings of a queue as one write has them."""
    given = {
        "policy": options.policy,
        "dedup": options.dedup,
        "dedup_window": options.dedup_window,
    }
    return settings.changed({name: value for name, value in given.items() if value is not None})


def open_target(target: Target, options: SinkOptions) -> Any:
    """
    The queue of a target, created or extended where that is still to be done.

    Raises `QueueExists` or `Conflict` when somebody else has given it another shape meanwhile.
    """
    try:
        queue = known_store(options.address).queue(target.queue)
    except (NoSuchStore, NoSuchQueue) as error:
        if isinstance(error, NoSuchStore):
            # It is new, or its folder was removed since it was opened.
            _open_store(options.address, create=True).close()
        queue = known_store(options.address).create_queue(
            target.queue,
            target.schema,
            shards=target.shards,
            key=target.key,
            exist_ok=True,
            **options.settings,
        )
    _check_settings(queue.info, options)
    _refuse_rendezvous(queue.info)
    if options.merge_schema and not set(target.schema.names) <= set(queue.schema.names):
        queue.add_columns(target.schema)
    _check_shape(queue, target)
    return queue


@lru_cache(maxsize=8)
def known_store(address: Address) -> Any:
    """A store that is there, opened once by a process that plans and commits batch after batch."""
    return _open_store(address, create=False)


def _open_store(address: Address, *, create: bool) -> Any:
    # Not at the top: executors import this module and need no SQL library.
    from queue_core.store import Store

    return Store(address, create=create)


def _refuse_rendezvous(info: QueueInfo) -> None:
    if info.settings.is_rendezvous:
        raise BadOption(
            f"queue {info.name!r} keeps no message (max_size=0): a load waits until it is fired, "
            "which the commit of a batch cannot; load from Python, or give the queue some room"
        )


def _check_settings(info: QueueInfo, options: SinkOptions) -> None:
    for option, setting in SETTINGS.items():
        wanted, there = options.settings.get(setting), getattr(info.settings, setting)
        if wanted is not None and wanted != there:
            raise BadOption(
                f"{option}={wanted!r}: queue {info.name!r} is set otherwise: its {setting} is "
                f"{there!r}; leave the option out, or change the queue's setting"
            )


def _check_shape(queue: Any, target: Target) -> None:
    """What was staged is read with the schema of its version, and found by its key's shard."""
    info = queue.info
    schema = info.schema
    if info.schema_version != target.schema_version:
        from queue_core.catalog import queues

        with queue.store.catalog.read() as connection:
            older = queues.schemas_of(connection, info.id).get(target.schema_version)
        schema = deserialize(older) if older else None
    if schema != target.schema or (info.shards, info.key) != (target.shards, target.key):
        raise Conflict(
            f"queue {info.name!r} was created or changed by somebody else while rows were "
            "written for it; nothing was loaded: write them again"
        )


def _new_target(options: SinkOptions, incoming: pa.Schema) -> Target:
    schema = canonical(_nullable(incoming))
    settings = QueueSettings.of(options.settings)
    key = settings.group if options.key is None else options.key
    check_key(key, schema, options.queue)
    column_roles.check(settings, schema, key)
    binding.check(by_options(settings, options), schema, key)
    return Target(
        storage=options.address.storage,
        queue=options.queue,
        schema=schema,
        schema_version=1,
        shards=options.shards,
        key=key,
        attributes=described(settings, schema),
    )


def _nullable(schema: pa.Schema) -> pa.Schema:
    """As Spark's own file formats do: what is not null today may be tomorrow."""
    return pa.schema([column.with_nullable(True) for column in schema])


def _incoming(rows: StructType) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types, without those that describe a message."""
    columns = [column for column in rows if column.name not in METADATA.names]
    for column in columns:
        try:
            to_arrow_schema(StructType([column]), timezone="UTC")
        except PySparkTypeError as error:
            raise SchemaMismatch(
                f"column {column.name!r}: PySpark cannot hand over the type "
                f"{column.dataType.simpleString()}; cast it, to a string for instance"
            ) from error
    return to_arrow_schema(StructType(columns), timezone="UTC")
