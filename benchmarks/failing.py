"""What traces of failures and their log cost a pool: CPU time per message, with and without.

    python -m benchmarks.failing [--seconds 30] [--postgresql]

Each failure has an id in its text. While a pool runs, both are switched on and off each second, and
the clock of the thread takes the CPU time of each call of them. What empty calls take, which is the
clock's own cost, is subtracted, and the rest is compared with the CPU time of the pool. To compare
whole rounds with and without is worth less: their figures differ by some per cent even in pools in
which nothing fails. It fails above 2%.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from benchmarks.arguments import add_catalog, store_of
from queue_core import ConsumerPool, Retry, Store, batch_handler
from queue_core.handling.failure_log import FailureLog
from queue_core.handling.traces import Tracer

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
MOST = 0.02
SLICE_SECONDS = 1.0
#: Messages loaded at once, while fewer than twice as many wait.
LOADED = 50_000
#: The parts that are switched off, and where they are.
PARTS = ((Tracer, "trace_of"), (FailureLog, "note"))


class Handlers:
    """Handlers that count the messages they were called with."""

    def __init__(self) -> None:
        self.handled = 0

    def failing(self, message: dict[str, Any]) -> bool:
        """Fail, as a handler with a helper does."""
        self.handled += 1
        return _look_up(message["number"])

    def failing_batch(self, batch: pa.RecordBatch) -> pa.Array:
        """Fail, for all messages of a batch."""
        self.handled += len(batch)
        raise LookupError(f"batch of {batch.column('number')[0]} cannot be written")


def _look_up(number: int) -> bool:
    raise LookupError(f"mailbox of c{number} does not exist in region {number % 7}")


def _nothing(*_: object) -> None:
    """Stand for a part that is switched off."""


class Clocked:
    """A part that is measured at each call, and may be switched off."""

    def __init__(self, owner: type, name: str) -> None:
        self._original = getattr(owner, name)
        self._place = owner, name
        self.on = True
        #: CPU nanoseconds and calls, while it was off and on.
        self.spent, self.calls = [0, 0], [0, 0]

    def __enter__(self) -> Clocked:
        original, spent, calls, clock = self._original, self.spent, self.calls, time.thread_time_ns

        def call(*given: Any) -> Any:
            on = self.on
            run = original if on else _nothing
            began = clock()
            result = run(*given)
            # Two threads at once may lose a call, of which there are a hundred thousand.
            spent[on] += clock() - began
            calls[on] += 1
            return result

        setattr(*self._place, call)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(*self._place, self._original)

    def cost(self) -> float:
        """Return the CPU nanoseconds of all calls while it was on, without those of the clock."""
        return self.spent[True] - self.overhead()

    def overhead(self) -> float:
        """Return what the clock took within the measured calls while it was on."""
        return self.calls[True] * self.spent[False] / max(self.calls[False], 1)


def cost(store: Store, kind: str, seconds: float) -> tuple[float, dict[str, float]]:
    """Return CPU microseconds per message of a pool, and of each part."""
    name = f"failing-{time.monotonic_ns()}"
    queue = store.create_queue(name, SCHEMA, retry=Retry(attempts=1))
    rows = pa.table({"number": range(LOADED), "text": ["x" * 100] * LOADED}, SCHEMA)
    handlers = Handlers()
    handler: Callable[..., Any] = getattr(handlers, kind)
    if kind == "failing_batch":
        handler = batch_handler(handler)
    spent = handled = loaded = 0.0
    with ExitStack() as stack:
        parts = [stack.enter_context(Clocked(*part)) for part in PARTS]
        stack.enter_context(ConsumerPool(store, name, handler, concurrency=2, tasks=[]))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while loaded - handlers.handled < LOADED * 2:
                queue.load(rows)
                loaded += LOADED
            for on in (True, False):
                before = time.process_time(), handlers.handled
                for part in parts:
                    part.on = on
                time.sleep(SLICE_SECONDS)
                if on:
                    spent += time.process_time() - before[0]
                    handled += handlers.handled - before[1]
    queue.admin.deactivate()
    queue.admin.drop()
    # Of the clock's calls only a part is within what it measures: so the ratios come out too high.
    whole = spent * 1e6 - sum(part.overhead() for part in parts) / 1e3
    return whole / handled, {
        name: part.cost() / 1e3 / handled for (_, name), part in zip(PARTS, parts, strict=True)
    }


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=30.0, help="for each of two pools")
    add_catalog(arguments)
    given = arguments.parse_args()
    logging.basicConfig(filename="/dev/null")
    worst = 0.0
    with store_of(given) as store:
        for kind in ("failing", "failing_batch"):
            whole, parts = cost(store, kind, given.seconds)
            ratio = sum(parts.values()) / whole
            told = " and ".join(f"{each:.3f} by {name}" for name, each in parts.items())
            print(f"{kind}: of {whole:.2f} µs of CPU per message {told}: {ratio:.1%}", flush=True)
            worst = max(worst, ratio)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
