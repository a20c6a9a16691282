"""The columns of a source, in Spark's types and in Arrow's, and the user's choice of them."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ignis_source.handle import StoreHandle
from ignis_source.options import SourceOptions
from queue_core.errors import SchemaMismatch
from queue_core.names import nearest
from queue_core.schema import METADATA
from queue_core.segments.reader import output_schema
from queue_core.views import REPORTS, VIEWS


def source_schema(options: SourceOptions) -> StructType:
    """Return the columns of a queue, a view or a report in Spark's types, from the catalog."""
    return from_arrow_schema(_available(options, metadata=options.include_metadata))


def projection(options: SourceOptions, wanted: StructType) -> pa.Schema:
    """
    Return the Arrow schema that Spark expects of each batch for its own schema.

    A schema given by the user is a projection. Raises `SchemaMismatch` for a column that the queue
    lacks or has with another type.
    """
    there = _available(options, metadata=True)
    expected = to_arrow_schema(wanted, timezone="UTC")
    for field in expected:
        if field.name not in there.names:
            raise SchemaMismatch(
                f"{_named(options)} has no column {field.name!r}"
                f"{nearest(field.name, there.names)}; it has {', '.join(there.names)}"
            )
        actual = from_arrow_schema(pa.schema([there.field(field.name)]))[0].dataType
        asked = wanted[field.name].dataType
        if actual.simpleString() != asked.simpleString():
            raise SchemaMismatch(
                f"{_named(options)}: column {field.name!r} is {actual.simpleString()}, not "
                f"{asked.simpleString()}; read it as it is and cast it in the query"
            )
    return expected


def _available(options: SourceOptions, *, metadata: bool) -> pa.Schema:
    if options.reports:
        with closing(StoreHandle(options.address)) as store:
            for name in options.queues:
                store.queue(name)
        return REPORTS
    if options.view is not None:
        return VIEWS[options.view]
    with closing(StoreHandle(options.address)) as store:
        schemas = [store.queue(name).schema for name in options.queues]
    whole = output_schema(schemas[0])
    return whole if metadata else pa.schema([f for f in whole if f.name not in METADATA.names])


def _named(options: SourceOptions) -> str:
    if options.reports:
        return "the report of a task"
    if options.view is not None:
        return f"view {options.view!r}"
    return f"queue {', '.join(map(repr, options.queues))}"
