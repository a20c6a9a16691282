"""CPU seconds of a copy from queue to queue, with one Spark setting changed at a time.

    python -m benchmarks.tuning                  # all rows, each in a process of its own
    python -m benchmarks.tuning --rows plain ui  # some of them

The seconds are those of the driver, its JVM and its Python workers, from the start of the program
to the end of the query. They depend less than the time of the clock on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import psutil

JAVA = "spark.driver.extraJavaOptions"
#: The rows: what is changed, beside a plain session. The last ones are those of `tuned`.
ROWS: dict[str, dict[str, str]] = {
    "plain": {},
    "ui": {"spark.ui.enabled": "false"},
    "compiler": {JAVA: "-XX:TieredStopAtLevel=1"},
    "collector": {JAVA: "-XX:+UseSerialGC"},
    "both": {JAVA: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    "arrow": {"spark.sql.execution.arrow.maxRecordsPerBatch": "100000"},
    "polling": {"spark.sql.streaming.pollingDelay": "100ms"},
    "tuned": {},
    "tuned, brief": {},
    "tuned, small rows": {},
}


def child(row: str, messages: int, batches: int) -> None:
    """Copy within this process, and print its CPU seconds and those of its children."""
    from pyspark.sql import SparkSession

    from pyspark_ignis import tuned
    from queue_core import Store

    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        import pyarrow as pa

        queue = store.create_queue("in", pa.schema([("number", pa.int64()), ("text", pa.string())]))
        queue.load(pa.table({"number": range(messages), "text": ["x" * 80] * messages}))
        builder = SparkSession.builder.master("local[2]")
        for name, value in {"spark.log.level": "ERROR", **ROWS[row]}.items():
            builder = builder.config(name, value)
        if row.startswith("tuned"):
            tuned(builder, brief=row.endswith("brief"), small_rows=row.endswith("small rows"))
        spark = builder.getOrCreate()
        seconds = [cpu()]
        reader = spark.readStream.format("ignis").option("queue", "in")
        query = (
            reader.option("maxMessagesPerTrigger", messages // batches)
            .load(folder)
            .writeStream.format("ignis")
            .option("queue", "out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(folder)
        )
        query.awaitTermination()
        seconds.append(cpu())
        assert store.queue("out").browse().num_rows == messages
        print(json.dumps({"start": seconds[0], "query": seconds[1] - seconds[0]}), flush=True)
        spark.stop()


def cpu() -> float:
    """Return the CPU seconds of this process and of all that it has started."""
    me = psutil.Process()
    found = 0.0
    for each in [me, *me.children(recursive=True)]:
        times = each.cpu_times()
        found += times.user + times.system + times.children_user + times.children_system
    return found


def workers() -> None:
    """Print what it costs to import PySpark as a Python worker does, with and without bytecode."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    lib = Path(spec.origin).parent / "python/lib"
    (py4j,) = lib.glob("py4j*.zip")
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "pyspark.zip"
        compile_zip(lib / "pyspark.zip", compiled)
        for name, archive in (("as it comes", lib / "pyspark.zip"), ("with bytecode", compiled)):
            said = [_import(archive, py4j) for _ in range(3)]
            print(f"{name:20} {min(said):.2f} to {max(said):.2f} CPU seconds")


def compile_zip(source: Path, target: Path) -> None:
    """Write a copy of an archive of modules in which each has its bytecode beside it."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(source) as archive:
            archive.extractall(folder)
        command = [sys.executable, "-m", "compileall", "-q", "-b", "--invalidation-mode"]
        subprocess.run([*command, "unchecked-hash", folder], check=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(folder).rglob("*")):
                archive.write(file, file.relative_to(folder))


def _import(archive: Path, py4j: Path) -> float:
    script = "import pyspark.worker, pyspark.sql.worker.plan_data_source_read as w; import os; "
    script += "assert '.zip' in w.__file__, w; t = os.times(); print(t.user + t.system)"
    paths = os.pathsep.join(map(str, (archive, py4j)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    """Run the rows that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=["workers", *ROWS])
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--child")
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.messages, asked.batches)
        return
    for row in asked.rows:
        if row == "workers":
            workers()
            continue
        more = ["--messages", str(asked.messages), "--batches", str(asked.batches)]
        command = [sys.executable, "-m", "benchmarks.tuning", "--child", row, *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{row:20} start {found['start']:.1f}, query {found['query']:.1f} CPU seconds")


if __name__ == "__main__":
    main()
