"""Measure what one query of many queues costs its driver: each step, by the number of queues.

    python benchmarks/many_queues.py [--queues 10,100,1000]

Each queue has two shards, and two messages per round. The figures are CPU seconds of this process,
and statements, which do not depend on how busy the machine is. Nothing of Spark runs: these are the
steps that a micro-batch makes in the driver, and one vain look for messages.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import Engine, event

from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.session import Session
from queue_core import Store

SCHEMA = pa.schema([("number", pa.int64())])
T = TypeVar("T")

_statements = 0


def _count(*_: object) -> None:
    global _statements
    _statements += 1


def measured(work: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Return a result, and the CPU seconds and statements that it took."""
    statements, began = _statements, time.process_time()
    result = work()
    return result, {
        "cpu": round(time.process_time() - began, 4),
        "statements": _statements - statements,
    }


def measure(count: int, folder: Path) -> dict[str, object]:
    """Return the costs of each step with *count* queues."""
    names = [f"queue-{number:05}" for number in range(count)]
    with Store.open(folder) as store:
        queues = [store.create_queue(name, SCHEMA, shards=2) for name in names]
        for queue in queues:
            queue.load([{"number": 1}, {"number": 2}])
        options = SourceOptions.of(
            {
                "path": str(folder),
                "queues": ",".join(names),
                "ack": "onCommit",
                "consumer": "measured",
                "tasks": "none",
            }
        )
        session, start = measured(lambda: Session(options))
        offset, costs = Offset("measured", 0), {"start": start}
        for _ in range(2):
            offset, costs["fire"] = measured(lambda at=offset: session.next(at, None, None))
            plan, costs["plan"] = measured(
                lambda to=offset: session.plan(Offset("measured", to.ticket - 1), to)
            )
            assert len(plan) == 2 * count
            _, costs["acknowledge"] = measured(lambda to=offset: session.acknowledge(to))
            for queue in queues:
                queue.load([{"number": 1}, {"number": 2}])
        session.next(offset, None, None)
        _, costs["look in vain"] = measured(
            lambda: session.next(Offset("measured", offset.ticket + 1), None, None)
        )
        session.close()
    return {"queues": count, **costs}


def main() -> None:
    """Print one line of JSON per number of queues."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", default="10,100,1000", help="numbers, separated by commas")
    counts = [int(each) for each in parser.parse_args().queues.split(",")]
    event.listen(Engine, "after_cursor_execute", _count)
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(count, Path(folder) / "store")), flush=True)


if __name__ == "__main__":
    main()
