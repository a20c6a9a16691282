"""The start of a query's process."""

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from pyspark_ignis.source import IgnisDataSource
from queue_core import Store
from queue_core.errors import NoSuchQueue, SchemaMismatch

#: Makes the reader of a query and begins a run, as Spark does. Prints whether the reader imports
#: the SQL library, whether both import it and file systems, and what the garbage collector did.
SCRIPT = """
import gc, sys
from pyspark.sql.types import LongType, StructType
from pyspark_ignis.source import IgnisDataSource

full = []
gc.callbacks.append(lambda phase, info: full.append(info) if info["generation"] == 2 else None)
source = IgnisDataSource({"path": sys.argv[1], "queue": "q", "includeMetadata": "false"})
reader = source.streamReader(StructType().add("n", LongType()))
print("sqlalchemy" in sys.modules)
reader.prepareForTriggerAvailableNow()
print("sqlalchemy" in sys.modules, "pyarrow.fs" in sys.modules)
print(len(full), gc.isenabled(), gc.get_freeze_count())
"""


def started(path, script=SCRIPT):
    """Run a script with a store's path; return the words that it prints."""
    with Store.open(path) as store:
        store.create_queue("q", pa.schema([("n", pa.int64())]))
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def reader_of(store, columns):
    given = {"catalog": store.address.catalog, "storage": store.address.storage, "queue": "q"}
    return IgnisDataSource(given).streamReader(columns)


def test_a_query_starts_without_a_full_collection_and_leaves_the_collector_as_it_was(tmp_path):
    assert started(tmp_path / "store") == ["False", "True", "False", "0", "True", "0"]


def test_a_process_that_needs_no_collector_does_not_get_one(tmp_path):
    script = f"import gc; gc.disable()\n{SCRIPT}"

    assert started(tmp_path / "store", script) == ["False", "True", "False", "0", "False", "0"]


#: Imports what the process of a source needs, which each query begins anew, and what tasks need.
MODULES = """
import sys
from ignis_sink import load, planning
from ignis_source import partition, session
from queue_core.segments import reader
print("pyarrow.compute" in sys.modules)
"""


def test_a_query_waits_for_no_functions_of_arrow_that_few_need(tmp_path):
    assert started(tmp_path / "store", MODULES) == ["False"]


def test_a_query_whose_queue_is_gone_at_its_start_names_the_queue(store):
    store.create_queue("qq", pa.schema([("n", pa.int64())]))
    reader = reader_of(store, StructType().add("n", LongType()))

    for begin in (
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()),
    ):
        with pytest.raises(NoSuchQueue, match="no queue 'q'; did you mean 'qq'"):
            begin()


def test_a_query_whose_queue_has_other_columns_at_its_start_is_refused_and_takes_nothing(store):
    queue = store.create_queue("q", pa.schema([("n", pa.string())]))
    queue.load([{"n": "one"}])
    reader = reader_of(store, StructType().add("n", LongType()))

    for _ in range(2):
        with pytest.raises(SchemaMismatch, match="queue 'q': column 'n' is string, not bigint"):
            reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert store.view("consumers").num_rows == 0
