"""What the pages say of Spark itself is so: versions to install, and a start that is too slow."""

import os
import re
import subprocess
import sys

import pytest

from tests.tree import ROOT

#: Runs a query, and runs it again with its checkpoint while it fails, as it may on a busy machine.
QUERY = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession
from queue_core import Store
folder = sys.argv[1]
with Store.open(f"{folder}/shop") as store:
    store.create_queue("orders", pa.schema([("id", pa.int64())])).load([{"id": 1}, {"id": 2}])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
for _ in range(5):
    orders = spark.readStream.format("ignis").option("queue", "orders").load(f"{folder}/shop")
    writer = orders.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:
        print("failed:", str(error).partition("SQLSTATE")[0])
    else:
        print("rows:", sum(each["numInputRows"] for each in query.recentProgress))
        break
"""
#: A Python that is late once, when Spark starts the process of a source.
LATE = """#!/bin/sh
case "$*" in
*streaming_source_runner*) if mkdir "{folder}/late" 2>/dev/null; then sleep 14; fi ;;
esac
exec "{python}" "$@"
"""


def install() -> str:
    """The section of the page about platforms that says how to install."""
    page = ROOT.joinpath("docs/how-to/platforms.md").read_text()
    return page.partition("\n## Install\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["Delta", "Iceberg"])
def test_install_names_the_pyspark_of_each_table_format(name):
    page = ROOT.joinpath(f"docs/how-to/{name.lower()}.md").read_text()
    ran = re.search(r"run this page with PySpark (\d+\.\d+)\.\d+ and (\w+ [\d.]+\d)", page)
    assert ran, "the page says with what it was run"

    line = next(line for line in install().splitlines() if line.startswith(f"| {name}"))

    assert f"'pyspark=={ran[1]}.*'" in line
    assert ran[2] in line


def test_troubleshooting_explains_a_python_that_is_late():
    page = ROOT.joinpath("docs/troubleshooting.md").read_text()
    row = next(line for line in page.splitlines() if "failed to connect back" in line)

    for remedy in ("10 s", "same checkpoint", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        assert remedy in row


@pytest.mark.nightly
def test_a_query_whose_python_was_late_goes_on_when_it_is_started_again(tmp_path):
    late = tmp_path / "python"
    late.write_text(LATE.format(folder=tmp_path, python=sys.executable))
    late.chmod(0o755)
    environment = {**os.environ, "PYSPARK_PYTHON": str(late), "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, "-c", QUERY, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip

    assert "Python worker failed to connect back" in done.stdout, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "rows: 2"
