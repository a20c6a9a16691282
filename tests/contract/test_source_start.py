"""The start of a query's process."""

import subprocess
import sys

import pyarrow as pa

from queue_core import Store

#: Makes the reader of a query, as Spark does, and prints what the garbage collector did meanwhile.
SCRIPT = """
import gc, sys
from pyspark.sql.types import LongType, StructType
from pyspark_ignis.source import IgnisDataSource

full = []
gc.callbacks.append(lambda phase, info: full.append(info) if info["generation"] == 2 else None)
source = IgnisDataSource({"path": sys.argv[1], "queue": "q", "includeMetadata": "false"})
source.streamReader(StructType().add("n", LongType()))
print("sqlalchemy" in sys.modules, len(full), gc.isenabled(), gc.get_freeze_count())
"""


def started(path, script=SCRIPT):
    """Run a script with a store's path; return the words that it prints."""
    with Store.open(path) as store:
        store.create_queue("q", pa.schema([("n", pa.int64())]))
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def test_a_query_starts_without_a_full_collection_and_leaves_the_collector_as_it_was(tmp_path):
    assert started(tmp_path / "store") == ["True", "0", "True", "0"]


def test_a_process_that_needs_no_collector_does_not_get_one(tmp_path):
    script = f"import gc; gc.disable()\n{SCRIPT}"

    assert started(tmp_path / "store", script) == ["True", "0", "False", "0"]
