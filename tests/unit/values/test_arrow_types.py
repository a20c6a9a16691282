"""A queue holds the types that Spark can hold."""

import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch
from queue_core.values.schema import (
    canonical,
    conform,
    deserialize,
    serialize,
)
from tests.arrow_types import CONVERTED, KEPT, REFUSED

by_name = {"argvalues": KEPT.values(), "ids": KEPT}


def schema_of(kind, name="a"):
    return pa.schema([pa.field(name, kind)])


def of_kind(values, kind):
    """Make an array; older versions of Arrow make not all dictionaries from Python's values."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def spark_takes(kind):
    """Whether PySpark's own converter returns this type unchanged."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    theirs = to_arrow_schema(from_arrow_schema(schema_of(kind)), timezone="UTC")
    return theirs.equals(schema_of(kind))


@pytest.mark.parametrize(("kind", "values"), **by_name)
def test_a_type_of_sparks_is_kept_as_it_is(kind, values):
    schema = schema_of(kind)
    table = pa.table([pa.array(values, kind)], schema=schema)

    assert spark_takes(kind)
    assert canonical(schema).equals(schema, check_metadata=True)
    assert deserialize(serialize(schema)).equals(schema, check_metadata=True)
    assert conform(table, schema, "orders") == table
    assert conform([{"a": value} for value in values], schema, "orders") == table


@pytest.mark.parametrize(("kind", "kept", "values"), CONVERTED.values(), ids=CONVERTED)
def test_another_type_is_turned_into_one_of_sparks(kind, kept, values):
    schema = canonical(schema_of(kind))
    table = pa.table([of_kind(values, kind)], schema=schema_of(kind))

    assert schema.equals(schema_of(kept))
    assert spark_takes(kept)
    conformed = conform(table, schema, "orders")
    assert conformed.schema.equals(schema)
    assert conformed.column("a").to_pylist() == pa.array(values, kept).to_pylist()
    conformed.validate(full=True)


@pytest.mark.parametrize(("kind", "message"), REFUSED.values(), ids=REFUSED)
def test_a_type_that_spark_cannot_hold_is_refused_with_its_column(kind, message):
    with pytest.raises(SchemaMismatch) as refusal:
        canonical(schema_of(kind, "amount"))

    assert "'amount" in str(refusal.value)
    assert message in str(refusal.value)
