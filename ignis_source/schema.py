"""The columns of a source, in Spark's types and in Arrow's, and the user's choice of them.

Spark creates the readers in processes that need no catalog. So a reader checks the choice when it
first opens the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ignis_source.options import SourceOptions
from queue_core.errors import SchemaMismatch
from queue_core.values.model import QueueInfo, check_roots
from queue_core.values.names import listed, nearest
from queue_core.values.schema import LOG_METADATA, METADATA, check_known, log_schema, output_schema
from queue_core.values.views import REPORTS, VIEWS

#: Spark passes timestamps in UTC. Before 4.2, its function knows no other zone.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)


def source_schema(options: SourceOptions) -> StructType:
    """
    Return the columns of a queue, a view or a report in Spark's types, from the catalog.

    Raises `BadSelector` for a selector or an order that does not fit, because Spark shows errors
    that come here above those of a running query.
    """
    # Not at the top: executors import this module and need no SQL library.
    from ignis_source.queue_refresh import located
    from queue_core.catalog.identity.handle import StoreHandle

    if options.view is not None:
        return from_arrow_schema(VIEWS[options.view])
    with closing(StoreHandle(options.address)) as store:
        options = located(store, options)
        queues = store.queues(options.queues) if options.queues else []
        if options.reports:
            return from_arrow_schema(REPORTS)
        return _checked(options, queues)


def look_up(options: SourceOptions) -> tuple[SourceOptions, list[QueueInfo], StructType]:
    """
    Return the options that `located` returns, the queues of a query, and its columns.

    Raises what `source_schema` does, and `BadOption` for queues that cannot be read together.
    """
    from ignis_source.queue_refresh import located, open_queues
    from queue_core.catalog.identity.handle import StoreHandle

    with closing(StoreHandle(options.address)) as store:
        options = located(store, options)
        queues = open_queues(store, options.queues)
        # Their query would fail only when it fires.
        check_roots(queues)
        return options, queues, _checked(options, queues)


def _checked(options: SourceOptions, queues: Sequence[QueueInfo]) -> StructType:
    """Return the columns, if the selector and the order fit; raises `BadSelector`."""
    if options.selector is not None or options.order_by is not None:
        from ignis_source.requests import check_selection

        check_selection(queues, options)
    return from_arrow_schema(columns_of(queues[0], options))


def columns_of(queue: QueueInfo, options: SourceOptions) -> pa.Schema:
    """Return the columns of a queue, or of its log, that the options want."""
    if not options.include_metadata:
        return queue.schema
    if options.log is not None:
        return log_schema(queue.schema, queue.name)
    return output_schema(queue.schema)


def batch_schema(wanted: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of each batch for its own schema."""
    return to_arrow_schema(wanted, **_IN_UTC)


def check_columns(options: SourceOptions, wanted: StructType, there: pa.Schema) -> None:
    """
    Raise `SchemaMismatch` for a wanted column that is not *there* or has another type.

    A schema given by the user is a projection. Without one, no column of a queue may be left out.
    """
    if options.all_columns:
        check_known(
            listed(options.queues),
            there.names,
            [*wanted.names, *METADATA.names, *LOG_METADATA.names],
        )
    for field in wanted:
        if field.name not in there.names:
            raise SchemaMismatch(
                f"{_named(options)} has no column {field.name!r}"
                f"{nearest(field.name, there.names) or '.'} Columns: {', '.join(there.names)}"
            )
        actual = from_arrow_schema(pa.schema([there.field(field.name)]))[0].dataType
        if there.field(field.name).nullable and not field.nullable:
            raise SchemaMismatch(
                f"{_named(options)}: column {field.name!r} may be null, and Spark would lose its "
                "nulls; leave NOT NULL out"
            )
        if actual.simpleString() != field.dataType.simpleString():
            raise SchemaMismatch(
                f"{_named(options)}: column {field.name!r} is {actual.simpleString()}, not "
                f"{field.dataType.simpleString()}; read it as it is and cast it in the query"
            )


def _named(options: SourceOptions) -> str:
    if options.reports:
        return "the report of a task"
    if options.view is not None:
        return f"view {options.view!r}"
    return f"queue {listed(options.queues, quoted=True)}"
