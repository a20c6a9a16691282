"""Measure what one query of many queues costs its driver: each step, by the number of queues.

    python -m benchmarks.many_queues [--queues 10,100,1000] [--seconds 30] [--postgresql]

Each queue has two shards, and two messages per round. The first figures are CPU seconds of this
process, and statements, which do not depend on how busy the machine is: of the steps that a
micro-batch makes in the driver, and of one vain look for messages. Nothing of Spark runs.

Then the same driver runs with all side tasks for some seconds, with empty queues, and while another
process loads ten messages a second into queues at random. The figures are the transactions that it
begins in a second. A *round of tasks* lets all tasks be due at once; they are due every 300 seconds
and more seldom, except for samples.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import Engine, event, update

from benchmarks.arguments import add_catalog, address_in
from benchmarks.costs import Meter
from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.session import Session
from queue_core import Store
from queue_core.catalog.record_tables import schedule
from queue_core.values.address import Address

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
        for how, weight in (("fire half", 1), ("fire half by weight", 4)):
            queues[0].admin.change_settings(weight=weight)
            # The session reads the settings of all queues once a second.
            time.sleep(1.1)
            offset, costs[how] = measured(lambda at=offset: session.next(at, count, None))
            session.plan(Offset("measured", offset.ticket - 1), offset)
            session.acknowledge(offset)
            for queue in queues:
                queue.load([{"number": 1}, {"number": 2}])
        session.next(offset, None, None)
        _, costs["look at an empty queue"] = measured(
            lambda: session.next(Offset("measured", offset.ticket + 1), None, None)
        )
        session.close()
    return {"queues": count, **costs}


def at_work(count: int, seconds: float, address: Address) -> dict[str, object]:
    """Return the transactions a second of a driver with all side tasks, at rest and busy."""
    names = [f"queue-{number:05}" for number in range(count)]
    with Store(address) as store:
        for name in names:
            store.create_queue(name, SCHEMA, shards=2, message_expiry=86_400.0)
    options = {"queues": ",".join(names), "ack": "onCommit", "consumer": "measured"}
    session = Session(SourceOptions.of({**address._asdict(), **options}))
    catalog = session.store.catalog
    meter = Meter(session.store)
    offset = Offset("measured", 0)

    def run(seconds: float) -> dict[str, float]:
        nonlocal offset
        before, end, batches = meter.now(), time.monotonic() + seconds, 0
        while time.monotonic() < end:
            following = session.next(offset, None, None)
            if following.ticket > offset.ticket:
                session.plan(offset, following)
                session.acknowledge(following)
                offset, batches = following, batches + 1
        spent = meter.since(before)
        return {
            "transactions a second": round(spent.transactions / seconds, 1),
            "cores": round(spent.client / 1e3 / seconds, 3),
            "batches a second": round(batches / seconds, 1),
        }

    run(15.0)  # The first looks of all tasks, which claim them for the first time.
    rest = run(seconds)
    again = update(schedule).values(begun_at=0, due_at=0)
    catalog.write(lambda connection: connection.execute(again))
    before = meter.now()
    run(15.0)
    spent = meter.since(before)
    a_round = {
        "transactions": round(spent.transactions - 15.0 * rest["transactions a second"]),
        "cpu": round(spent.client / 1e3 - 15.0 * rest["cores"], 2),
    }
    load = multiprocessing.get_context("spawn").Process(target=_load, args=(address, names))
    load.start()
    try:
        run(5.0)
        busy = run(seconds)
    finally:
        load.kill()
        load.join()
    session.close()
    return {"queues": count, "at rest": rest, "a round of tasks": a_round, "busy": busy}


def _load(address: Address, names: list[str]) -> None:
    with Store(address) as store:
        while True:
            store.queue(random.choice(names)).load([{"number": 1}])
            time.sleep(0.1)


def main() -> None:
    """Print two lines of JSON per number of queues."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", default="10,100,1000", help="numbers, separated by commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="0: only the steps")
    add_catalog(parser)
    given = parser.parse_args()
    counts = [int(each) for each in given.queues.split(",")]
    event.listen(Engine, "after_cursor_execute", _count)
    for count in counts:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            print(json.dumps(measure(count, Path(folder) / "steps")), flush=True)
            if given.seconds:
                with address_in(folder, given) as address:
                    print(json.dumps(at_work(count, given.seconds, address)), flush=True)


if __name__ == "__main__":
    main()
