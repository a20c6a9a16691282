"""Plan a load: check the columns and options of a write before any of its rows are read."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from ignis_sink.message import Routes, Target
from ignis_sink.options import SETTINGS, SinkOptions
from queue_core.catalog import queues
from queue_core.catalog.identity.handle import known_store
from queue_core.errors import BadOption, NoSuchQueue, NoSuchStore, QueueDeactivated, SchemaMismatch
from queue_core.policies import binding
from queue_core.segments.shard_hash import check_key
from queue_core.values import column_roles
from queue_core.values.durations import LONGEST_SECONDS
from queue_core.values.model import QueueInfo, check_loads
from queue_core.values.names import nearest
from queue_core.values.schema import METADATA, canonical, check_insertable, evolve
from queue_core.values.settings import QueueSettings
from queue_core.verbs.capacity.bounds import check_keeps

#: Spark passes timestamps in UTC. Before 4.2, its function knows no other zone.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)


def find_target(options: SinkOptions, rows: StructType) -> Target:
    """
    Return the target of a write of *rows*; a queue that does not exist is not created yet.

    Raises `SchemaMismatch` or `BadOption`; with `queueColumn`, also `NoSuchStore` and
    `NoSuchQueue`.
    """
    if options.queue_column is not None:
        return _find_routes(options, rows, options.queue_column)
    incoming = _incoming(rows)
    identity = None
    missing: NoSuchStore | NoSuchQueue | None = None
    try:
        identity = known_store(options.address).storage.identity
        spec = _existing_queue(find_queue(options), options, incoming)
    except (NoSuchQueue, NoSuchStore) as error:
        if isinstance(error, NoSuchStore):
            # The store may have been open here when its folder was removed.
            identity = None
        missing, spec = error, _new_queue(options, incoming)
    return Target(
        storage=options.address.storage,
        specs={spec.name: spec},
        store=identity,
        missing=missing,
    )


def _find_routes(options: SinkOptions, rows: StructType, wanted: str) -> Target:
    """Return the queues that can take *rows* without the column that names them."""
    alike = [each for each in rows.names if each.lower() == wanted.lower()]
    column = wanted if wanted in alike else next(iter(alike), None)
    if column is None:
        raise BadOption(
            f"queueColumn={wanted!r}: the rows have no such column{nearest(wanted, rows.names)}"
        )
    if not isinstance(rows[column].dataType, StringType):
        found = rows[column].dataType.simpleString()
        raise BadOption(f"queueColumn={wanted!r}: the column is {found}, and must be a string")
    incoming = _incoming(StructType([each for each in rows if each.name != column]))
    store = known_store(options.address)
    with store.catalog.read() as connection:
        infos = queues.find_all(connection)
    by_name = {info.name: info for info in infos}
    # With a template, those that are named are made with their first rows.
    needed = options.queues if options.template is None else (options.template,)
    for name in needed:
        if name not in by_name:
            raise NoSuchQueue(f"the store has no queue {name!r}{nearest(name, by_name)}")
    fit: dict[str, QueueInfo] = {}
    unfit: dict[str, str] = {}
    for name in by_name.keys() & {*(options.queues or by_name), options.template}:
        info = by_name[name]
        try:
            fit[info.name] = _existing_queue(info, replace(options, queues=(info.name,)), incoming)
            if info.deactivated_at is not None:
                raise queues.given_up_error(info.name, info.deactivated_at)
        except (SchemaMismatch, BadOption, QueueDeactivated) as error:
            if info.name in options.queues or info.name == options.template:
                raise
            unfit[info.name] = str(error)
    template = None if options.template is None else fit[options.template]
    return Target(
        storage=options.address.storage,
        specs=fit,
        store=store.storage.identity,
        routes=Routes(
            column=column,
            unfit=unfit,
            only=frozenset(options.queues) if options.queues else None,
            template=template,
        ),
    )


def find_queue(options: SinkOptions) -> QueueInfo:
    """Return the queue of a write as it is now; raises `NoSuchStore` or `NoSuchQueue`."""
    with known_store(options.address).catalog.read() as connection:
        return queues.find_magazine(connection, options.queue)[0]


def check_queue(info: QueueInfo, options: SinkOptions) -> None:
    """Raise `BadOption` unless a write with these options may load this queue."""
    if options.queue != info.name:
        raise BadOption(
            f"queue={options.queue!r} is the sideline of queue {info.name!r}; messages are loaded "
            f"into main: write queue={info.name!r}"
        )
    if info.name != options.template:
        check_loads(info)
    if options.dedup or info.settings.dedup:
        check_keeps(info, "a write with dedup does not wait for", "remove dedup")
    for option in ("policy", "dedup"):
        chosen, own = getattr(options, option), getattr(info.settings, option)
        # The order in which dedup names its columns does not matter.
        if chosen and own and chosen != own and (option == "policy" or {*chosen} != {*own}):
            raise BadOption(
                f"{option}={chosen!r}: queue {info.name!r} has {option} = {own!r}, which holds for "
                "all loads; leave the option out, or change the queue's setting"
            )
    own_window = info.settings.dedup_window
    window = options.dedup_window
    if window is not None and min(window, LONGEST_SECONDS) > own_window:
        raise BadOption(
            f"dedupWindow={window:g}: queue {info.name!r} remembers a message for "
            f"dedup_window = {own_window:g} seconds; leave the option out, or change the queue's "
            "setting"
        )
    unlike = info.settings.unlike(options.settings)
    for option, setting in SETTINGS.items():
        given, actual = options.settings.get(setting), getattr(info.settings, setting)
        if setting in unlike:
            raise BadOption(
                f"{option}={given!r}: queue {info.name!r} has {setting} = {actual!r}; leave the "
                "option out, or change the queue's setting"
            )


def _existing_queue(info: QueueInfo, options: SinkOptions, incoming: pa.Schema) -> QueueInfo:
    if options.key is not None and options.key != info.key:
        raise BadOption(
            f"key={options.key!r}: queue {info.name!r} has the key {info.key!r}, and keeps it"
        )
    check_queue(info, options)
    schema = info.schema
    added = [field for field in _nullable(incoming) if field.name not in schema.names]
    if options.merge_schema and added:
        schema = evolve(schema, pa.schema([*schema, *added]), info.name)
    check_insertable(incoming, schema, info.name)
    binding.check(options.applied_to(info.settings), schema, info.key, info.shards)
    version = info.schema_version + (not schema.equals(info.schema))
    # The tasks get it, and do not need the text of its settings.
    return replace(info, schema=schema, schema_version=version, stored_settings=None)


def _new_queue(options: SinkOptions, incoming: pa.Schema) -> QueueInfo:
    schema = canonical(_nullable(incoming))
    settings = QueueSettings.of(options.of_new_queue)
    key = settings.group if options.key is None else options.key
    check_key(key, schema, options.queue)
    column_roles.check(settings, schema, key)
    binding.check(settings, schema, key, options.shards)
    return QueueInfo(
        id=0,
        name=options.queue,
        shards=options.shards,
        key=key,
        schema=schema,
        schema_version=1,
        settings=settings,
        created_at=0,
    )


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Make all columns nullable, as Spark's own file formats do: later rows may have nulls."""
    return pa.schema([column.with_nullable(True) for column in schema])


def _incoming(rows: StructType) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types, without the metadata columns."""
    columns = [column for column in rows if column.name not in METADATA.names]
    for column in columns:
        try:
            to_arrow_schema(StructType([column]), **_IN_UTC)
        except PySparkTypeError as error:
            raise SchemaMismatch(
                f"column {column.name!r}: PySpark cannot hand over the type "
                f"{column.dataType.simpleString()}; cast it, to a string for instance"
            ) from error
    return to_arrow_schema(StructType(columns), **_IN_UTC)
