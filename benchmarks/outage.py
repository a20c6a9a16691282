"""Stop the service that a handler calls: how many messages fail, and how soon does work go on?

    python -m benchmarks.outage [--messages 1000000] [--down 600] [--batch 50] [--workers 8]
                                [--one-tenant] [--hangs] [--fair] [--in-flight 2]
                                [--time-limit 600] [--postgresql]

The service is an HTTP server in a process of its own, which is killed while messages are handled,
and started again after *--down* seconds; with *--hangs*, it stands still instead, and each request
takes 5 seconds to fail. With *--one-tenant*, only the server of tenant 0 is stopped, while the
messages of the nine others must go on; the pool has no breaker then, and failed messages come back
by the queue's retries. With *--fair*, tenants take turns. *--in-flight* is a limit of the queue for
each tenant, and *--time-limit* the seconds that a call of the handler may take. With *--batch 1*,
the handler makes one request per message; otherwise, one per batch and tenant.
"""

from __future__ import annotations

import argparse
import http.client
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, store_of
from benchmarks.ports import lasting_port
from queue_core import Breaker, ConsumerPool, Store, batch_handler, limit

SCHEMA = pa.schema([("number", pa.int64()), ("tenant", pa.string())])
SERVER = Path(__file__).with_name("service.py")
TENANTS = 10
LOADED_AT_ONCE = 100_000


class Outage(NamedTuple):
    """What a run has shown."""

    messages: int
    handled: int
    sidelined: int
    #: Messages that a retry has brought back after the pool had ended.
    waiting: int
    #: Calls that failed, each for one message.
    failed: int
    #: Messages that were handled more than once.
    repeated: int
    #: Requests that were made while the service was down.
    requests: int
    #: Seconds from the return of the service to the first message that needs it.
    late: float
    #: Messages a second of the other tenants, before the outage, and during it while some are left.
    before: float
    during: float
    seconds: float


class Service:
    """An HTTP server in a process of its own, at a port that it keeps."""

    def __init__(self) -> None:
        self.port = lasting_port()
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self._process = subprocess.Popen([sys.executable, str(SERVER), str(self.port)])
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)

    def hang(self) -> None:
        """Let the server stand still until `go_on`."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End what `hang` has begun."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()


class Client:
    """A handler that sends each message to the service of its tenant."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: list[http.client.HTTPConnection] = []
        self.handled: Counter[int] = Counter()
        self.by_tenant: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        #: When a message of a tenant was first handled after this was cleared.
        self.first: dict[str, float] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._opened:
            connection.close()

    def one(self, message: dict[str, Any]) -> bool:
        """Handle one message."""
        self._send(message["tenant"], [message["number"]])
        return True

    def many(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Handle a batch: one request for each tenant."""
        tenants, numbers = batch["tenant"].to_numpy(False), batch["number"].to_numpy()
        outcomes = np.full(len(numbers), "delete", object)
        kinds = np.full(len(numbers), None, object)
        for tenant in np.unique(tenants):
            mine = tenants == tenant
            try:
                self._send(str(tenant), numbers[mine].tolist())
            except OSError:
                outcomes[mine], kinds[mine] = "sideline", "exception"
        return pa.record_batch(
            {"outcome": pa.array(outcomes), "kind": pa.array(kinds, pa.string())}
        )

    def _send(self, tenant: str, numbers: list[int]) -> None:
        with self._lock:
            self.requests[tenant] += 1
        port = self._ports[tenant]
        connections = self._local.__dict__.setdefault("connections", {})
        connection = connections.get(port)
        try:
            if connection is None:
                connection = connections[port] = http.client.HTTPConnection(
                    "127.0.0.1", port, timeout=5
                )
                self._opened.append(connection)
            connection.request("POST", f"/{tenant}", body=str(numbers))
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
            connections.pop(port, None)
            raise ConnectionError(f"{tenant}: {error}") from error
        now = time.monotonic()
        with self._lock:
            self.handled.update(numbers)
            self.by_tenant[tenant] += len(numbers)
            self.first.setdefault(tenant, now)


def run(
    store: Store,
    *,
    messages: int,
    down: float,
    warm: float = 2.0,
    batch: int = 50,
    workers: int = 8,
    one_tenant: bool = False,
    hangs: bool = False,
    fair: bool = False,
    in_flight: int | None = None,
    time_limit: float | None = None,
    breaker: Breaker | None = None,
) -> Outage:
    """Load messages, handle them, stop the service for *down* seconds, and count."""
    limits = None if in_flight is None else limit("tenant", in_flight=in_flight)
    queue = store.create_queue(
        "calls",
        SCHEMA,
        shards=4,
        categories=["tenant"],
        limits=limits,
        fair_by="tenant" if fair else None,
    )
    for first in range(0, messages, LOADED_AT_ONCE):
        numbers = np.arange(first, min(first + LOADED_AT_ONCE, messages))
        tenants = [f"tenant-{number % TENANTS}" for number in numbers]
        queue.load(pa.table({"number": numbers, "tenant": tenants}))
    failing, others = Service(), Service()
    names = [f"tenant-{number}" for number in range(TENANTS)]
    affected = names[:1] if one_tenant else names
    client = Client({name: (failing if name in affected else others).port for name in names})
    handler = client.one if batch == 1 else batch_handler(client.many)

    def counted(tenants: list[str], counter: Counter[str]) -> int:
        return sum(counter[name] for name in tenants)

    rest = [name for name in names if name not in affected]
    messages_of_rest = messages * len(rest) // TENANTS
    begun = time.monotonic()
    with ConsumerPool(
        store,
        "calls",
        handler,
        concurrency=workers,
        batch=max(batch, 10),
        handler_timeout=time_limit,
        breaker=breaker,
    ) as pool:
        time.sleep(warm)
        before = counted(rest, client.by_tenant) / warm
        (failing.hang if hangs else failing.stop)()
        requests, others_handled = (
            counted(affected, client.requests),
            counted(rest, client.by_tenant),
        )
        lasted = _wait(down, lambda: counted(rest, client.by_tenant) >= messages_of_rest)
        requests = counted(affected, client.requests) - requests
        during = (counted(rest, client.by_tenant) - others_handled) / lasted
        client.first.clear()
        back = time.monotonic()
        (failing.go_on if hangs else failing.start)()
        while pool.drain(3600) and store.view("queues").column("retrying")[0].as_py():
            time.sleep(0.1)
        ended = time.monotonic()
        failed = pool.counts.get("sidelined", 0)
    first = min(client.first.get(name, ended) for name in affected)
    client.close()
    failing.stop()
    others.stop()
    return Outage(
        messages=messages,
        handled=len(client.handled),
        sidelined=queue.browse(magazine="sideline").num_rows,
        waiting=queue.browse().num_rows,
        failed=failed,
        repeated=sum(count > 1 for count in client.handled.values()),
        requests=requests,
        late=first - back,
        before=before,
        during=during,
        seconds=ended - begun,
    )


def _wait(seconds: float, done: Callable[[], bool]) -> float:
    """Wait *seconds*, and return after how many of them it was *done*."""
    begun = time.monotonic()
    lasted = seconds
    while (left := begun + seconds - time.monotonic()) > 0:
        if lasted == seconds and done():
            lasted = seconds - left
        time.sleep(min(left, 0.5))
    return lasted


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--down", type=float, default=600.0, help="seconds without the service")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds before the outage")
    parser.add_argument("--batch", type=int, default=50, help="1: a request per message")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--one-tenant", action="store_true")
    parser.add_argument("--hangs", action="store_true", help="let the server stand still")
    parser.add_argument("--fair", action="store_true", help="let the tenants take turns")
    parser.add_argument("--time-limit", type=float, help="seconds that a call may take")
    parser.add_argument("--in-flight", type=int, help="a limit of the queue for each tenant")
    add_catalog(parser)
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with store_of(given) as store:
        found = run(
            store,
            messages=given.messages,
            down=given.down,
            warm=given.warm,
            batch=given.batch,
            workers=given.workers,
            one_tenant=given.one_tenant,
            hangs=given.hangs,
            fair=given.fair,
            time_limit=given.time_limit,
            in_flight=given.in_flight,
            breaker=None if given.one_tenant else Breaker(),
        )
    table = Table("figure", "value")
    for name, value in found._asdict().items():
        table.add_row(name, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)
    lost = found.messages - found.handled - found.sidelined
    if lost or (found.failed >= 1000 and not given.one_tenant) or found.late > 5:
        sys.exit(f"the promise is broken: {lost} lost, {found.failed} failed")


if __name__ == "__main__":
    main()
