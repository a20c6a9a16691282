"""Which modules each way of data passes, in order: ``python -m benchmarks.ways [--names]``.

Each way runs twice for real on an embedded store, and the second time is traced. The calls of Spark
are made here, in its order, since no trace follows it through the JVM. A module counts if one of
its functions is called.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from rich.console import Console
from rich.table import Table

from pyspark_ignis.source import IgnisDataSource
from queue_core import ConsumerPool, Retry, Store, constant

_ROOT = Path(__file__).parent.parent
#: The packages that a way of data can pass.
_PACKAGES = ("queue_core", "ignis_source", "ignis_sink", "pyspark_ignis")
_ROWS = pa.table({"number": pa.array(range(10), pa.int64())})
_SPARK_SCHEMA = from_arrow_schema(_ROWS.schema)
_QUERY = "7d0f7dca-0000-4000-8000-000000000000"
_PATIENCE_SECONDS = 30.0

#: The modules of a way, in the order of their first calls.
Way = dict[str, None]


@contextmanager
def traced(way: Way) -> Iterator[None]:
    """Note the modules of the product whose functions are called, in this and in new threads."""
    folders = tuple(f"{_ROOT / package}/" for package in _PACKAGES)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(folders):
            way[code.co_filename.removeprefix(f"{_ROOT}/").removesuffix(".py")] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def firing(store: Store, _: str) -> Callable[[Way], None]:
    """Fire ten messages from Python."""
    queue = store.create_queue("fired", _ROWS.schema)

    def once(way: Way) -> None:
        queue.load(_ROWS)
        with traced(way):
            assert queue.fire(10).messages.num_rows == 10

    return once


def batch(store: Store, folder: str) -> Callable[[Way], None]:
    """Plan, read and commit a batch of Spark's source."""
    queue = store.create_queue("source", _ROWS.schema)
    reader = IgnisDataSource({"path": folder, "queue": queue.name, "tasks": "none"}).streamReader(
        _SPARK_SCHEMA
    )
    limit, before = reader.getDefaultReadLimit(), [reader.initialOffset()]

    def once(way: Way) -> None:
        queue.load(_ROWS)
        end, until = before[0], time.monotonic() + _PATIENCE_SECONDS
        while end == before[0]:
            assert time.monotonic() < until
            way.clear()
            with traced(way):
                end = reader.latestOffset(before[0], limit)
                for part in reader.partitions(before[0], end):
                    list(reader.read(part))
                reader.commit(end)
        before[0] = end

    return once


def sinking(store: Store, folder: str) -> Callable[[Way], None]:
    """Stage and publish a batch of Spark's sink."""
    store.create_queue("sink", _ROWS.schema)
    options = {"path": folder, "queue": "sink", "checkpointLocation": f"{folder}-checkpoint"}
    numbers = iter(range(9))

    def once(way: Way) -> None:
        with mock.patch("ignis_sink.load.current_query", return_value=_QUERY), traced(way):
            writer = IgnisDataSource(options).streamWriter(_SPARK_SCHEMA, False)
            writer.commit([writer.write(iter(_ROWS.to_batches()))], next(numbers))

    return once


def retrying(store: Store, _: str) -> Callable[[Way], None]:
    """Let a handler of a pool fail at a message, and handle it once it is due again."""
    queue = store.create_queue("retried", _ROWS.schema)
    failed: list[Any] = []

    def handle(message: dict[str, Any]) -> bool:
        failed.append(message)
        if len(failed) % 2:
            raise ValueError("the first attempt fails")
        return True

    pool = partial(ConsumerPool, store, queue.name, handle, retry=Retry(backoff=constant("100ms")))

    def once(way: Way) -> None:
        queue.load(_ROWS.slice(0, 1))
        until = time.monotonic() + _PATIENCE_SECONDS
        with traced(way), pool(concurrency=1) as running:
            while not running.counts.get("deleted"):
                assert time.monotonic() < until
                time.sleep(0.01)

    return once


WAYS = {
    "a firing from Python": firing,
    "a batch of Spark's source": batch,
    "a load through Spark's sink": sinking,
    "a message of a pool that fails once, from its start to its stop": retrying,
}


def main() -> None:
    """Trace and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="print the modules")
    given = parser.parse_args()
    table = Table("way", "modules", "folders")
    with tempfile.TemporaryDirectory(prefix="ignis-ways-") as made:
        folder = str(Path(made) / "store")
        with Store.open(folder) as store:
            for name, way in WAYS.items():
                modules: Way = {}
                once = way(store, folder)
                for _ in range(2):
                    modules.clear()
                    once(modules)
                folders = {module.rpartition("/")[0] for module in modules}
                table.add_row(name, f"{len(modules)}", f"{len(folders)}")
                if given.names:
                    Console().print(f"{name}: {' > '.join(modules)}")
    Console().print(table)


if __name__ == "__main__":
    main()
