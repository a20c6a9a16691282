"""Measure what the console costs on a large store: ``python -m benchmarks.console [ROW ...]``.

The rows: `pages` (the time of each page on the server), `viewers` (transactions per second while
pages are open), `firing` (how much later messages are fired beside a console that is in use), and
`actions` (for how long a transaction of an action on many messages keeps others from the store).
``--postgresql`` measures on PostgreSQL.

The store has 1,000 queues and a million slices. One queue has half of the slices, and 10,000
messages in its sideline; all have the samples of a month. Caches of the console are emptied before
each page, so that each is read anew. Viewers open pages as often as their script does.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from sqlalchemy import text, update

from benchmarks.arguments import add_catalog, add_names, address_in
from benchmarks.asgi import Client
from benchmarks.fabricated import SCHEMA, make, run
from benchmarks.holds import noted
from ignis_console.app import create_app
from ignis_console.config import ConsoleOptions
from ignis_console.pages import PAGES
from queue_core import Queue, Store
from queue_core.catalog import dialect
from queue_core.catalog.tables import metadata, slices
from queue_core.upkeep.tasks.sample import sample
from queue_core.values.address import Address

LARGE = "large"
#: Seconds for which nothing that a console does may keep a firing waiting.
LONGEST = 0.005
#: Seconds after which the script of a page opens it again.
EACH_SECONDS = 3.0
#: Messages of the action that comes before the measured one.
FIRST = 100
#: How often a process that fires sends what it has noted.
SENT_SECONDS = 0.2
#: Pages that stay open.
OPEN = ("/", f"/queues/{LARGE}", "/queues/queue-0001", "/problems", f"/queues/{LARGE}/sideline")

#: Copies the newest samples into the past, *each* seconds apart.
_SAMPLES = """
    INSERT INTO samples (seconds, taken_at, queue_id, waiting, oldest_age, in_flight, sidelined,
        retrying, dead, elapsed, new_loaded, new_fired, new_deleted, new_sidelined,
        all_loaded, all_fired, all_deleted, all_sidelined)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
    SELECT CAST(:each AS INTEGER), taken_at - i * CAST(:apart AS BIGINT), queue_id, waiting,
        oldest_age, in_flight, sidelined, retrying, dead, CAST(:apart AS BIGINT), 10, 10, 10, 0,
        all_loaded, all_fired, all_deleted, all_sidelined
    FROM samples, n WHERE seconds = 10 AND taken_at = (SELECT max(taken_at) FROM samples)
"""


def fill(store: Store, queues: int, size: int) -> None:
    """Make a store with this many queues and slices in all."""
    half = size // 2
    each = half // max(queues - 1, 1)
    for number in range(queues - 1):
        queue = make(store, f"queue-{number:04}", each, analyze=False)
        if number % 10 == 0:
            queue.sideline(queue.fire(2), reason="no such customer")
            queue.fire(2)
    large = make(store, LARGE, half)
    for _ in range(5):
        large.sideline(large.fire(half // 250), reason="no such customer")
    large.sideline(large.fire(5), reason="no stock")
    large.fire(half // 500)
    sample(store.catalog)
    for seconds, count in ((10, 359), (60, 1439), (3600, 719)):
        values = {"each": seconds, "apart": seconds * 10**6, "count": count}
        store.catalog.write(lambda connection, v=values: connection.execute(text(_SAMPLES), v))
    if store.catalog.engine.dialect.name == "postgresql":
        # As it does by itself after a minute.
        run(store, "ANALYZE")


@contextmanager
def console(store: Store) -> Iterator[Any]:
    """Open a console without a network, prepared as one with a network is."""
    app = create_app(store, ConsoleOptions())
    app.state.console.prepare()
    yield app
    app.state.console.close()


async def logged_in(app: Any) -> Client:
    """Return a client that may operate."""
    client = Client(app)
    await client.log_in()
    return client


def pages(store: Store, rounds: int) -> None:
    """Print the time of each page, and of its twin in the API."""
    table = Rows("page (ms)", "API, median", "median", "p99", "worst", "first")
    message = store.queue(LARGE).peek(1)["_message_id"][0].as_py()
    paths = [
        (each.path.format(**where), each.api.format(**where))
        for each in PAGES
        for where in ({"queue": LARGE, "message_id": message},)
    ]
    with console(store) as app:

        async def measure() -> None:
            client = await logged_in(app)

            async def anew(path: str) -> float:
                # As if nobody had looked at this page within the last seconds.
                app.state.console.changed(LARGE)
                # Which is read beside the pages.
                app.state.console.overview()
                answer = await client.get(path)
                assert answer.status == 200, (path, answer.body[:500])
                return answer.seconds * 1e3

            for path, api in [*paths, ("/metrics", "/metrics")]:
                first = await anew(path)
                times = [await anew(path) for _ in range(rounds)]
                twin = [await anew(api) for _ in range(rounds)]
                median, high = np.percentile(times, [50, 99])
                figures = (np.median(twin), median, high, max(times), first)
                table.add_row(path, *(f"{each:.0f}" for each in figures))

        asyncio.run(measure())
    table.show()


async def look(client: Client, path: str, seconds: float) -> None:
    """Keep a page open for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await client.get(path)
        await asyncio.sleep(EACH_SECONDS)


def viewers(store: Store, seconds: float) -> None:
    """Print the transactions of a console per second, by the number of people who look."""
    table = Rows("viewers", "transactions a second", "CPU of a core")
    for number in (1, 5):
        with console(store) as app:

            async def watch(app: Any = app, number: int = number) -> tuple[float, float]:
                client = await logged_in(app)
                await asyncio.gather(*(look(client, path, 1) for path in OPEN[:number]))
                with noted(store) as transactions:
                    cpu, began = time.process_time(), time.monotonic()
                    await asyncio.gather(*(look(client, path, seconds) for path in OPEN[:number]))
                    passed = time.monotonic() - began
                return transactions.begun / passed, (time.process_time() - cpu) / passed

            rate, cpu = asyncio.run(watch())
            table.add_row(f"{number}", f"{rate:.2f}", f"{100 * cpu:.0f} %")
    table.show()


def firing(store: Store, seconds: float) -> None:
    """Print how long firings take without and with a console in use, in alternation."""
    context = multiprocessing.get_context("spawn")
    in_use, ended, ready = context.Event(), context.Event(), context.Event()
    beside = context.Process(target=use, args=(store.address, in_use, ended, ready))
    beside.start()
    ready.wait()
    queue = store.queue("queue-0002")
    times: dict[bool, list[np.ndarray[Any, Any]]] = {False: [], True: []}
    end = time.monotonic() + seconds
    for busy in itertools.cycle((False, True)):
        if time.monotonic() > end and not busy:
            break
        (in_use.set if busy else in_use.clear)()
        time.sleep(0.5)
        block = time.monotonic() + 2
        found = []
        while time.monotonic() < block:
            found.append(fired(queue) * 1e3)
        times[busy].append(np.array(found))
    ended.set()
    in_use.set()
    beside.join()
    table = Rows("a firing (ms)", "median", "p99", "worst")
    for busy, label in ((False, "without a console"), (True, "beside a console in use")):
        every = np.concatenate(times[busy])
        figures = (*np.percentile(every, [50, 99]), every.max())
        table.add_row(label, *(f"{each:.2f}" for each in figures))
    pairs = zip(times[False], times[True], strict=True)
    more = np.array([np.percentile(b, [50, 99]) - np.percentile(a, [50, 99]) for a, b in pairs])
    middle = np.median(more, axis=0)
    label = f"difference, median of {len(more)} pairs"
    table.add_row(label, *(f"{each:+.2f}" for each in middle), "")
    table.show()


def fired(queue: Queue) -> float:
    """Fire one message and put it back; return the seconds of the firing."""
    began = time.perf_counter()
    firing = queue.fire(1)
    seconds = time.perf_counter() - began
    queue.reload(firing)
    time.sleep(0.002)
    return seconds


def use(address: Address, in_use: Any, ended: Any, ready: Any) -> None:
    """Open five pages, open others by hand, and act, whenever *in_use* is set."""
    with Store(address) as store, console(store) as app:

        async def act(client: Client) -> None:
            path = "/api/queues/queue-0003/actions/"
            for action in ("pause", "resume"):
                shown = json_of(await client.get(path + action))
                await client.post(path + action, {"expected": shown["messages"]})
            for page in ("messages?count=200", "sideline", "?span=month"):
                await client.get(f"/queues/queue-0004/{page}".replace("/?", "?"))

        async def work() -> None:
            client = await logged_in(app)
            for path in OPEN:
                await client.get(path)
            ready.set()
            while not ended.is_set():
                if in_use.is_set():
                    opened = (client.get(path) for path in OPEN)
                    await asyncio.gather(*opened, act(client), asyncio.sleep(1))
                else:
                    await asyncio.sleep(0.05)

        with noted(store) as transactions:
            asyncio.run(work())
        longest = transactions.longest
        median = np.median([each.cpu for each in transactions.holds]) * 1e3
    text = f"at most {longest.wall * 1e3:.1f} ms, CPU {longest.cpu * 1e3:.1f}, median {median:.1f}"
    print(f"pause, resume: {text}, of {len(transactions.holds)} transactions")


def actions(store: Store, messages: int, singles: int) -> None:
    """
    Print for how long a transaction of an action holds the store, and what the action takes.

    Each action runs on few messages first: the engine compiles a statement at its first execution.
    Beside it, a process fires single messages of another queue. Its waits for the store are of all
    of its firings meanwhile, most of which find the store free.
    """
    few, many = ("few slices", "many slices")
    table = Rows(
        "action",
        *(
            f"{size}: {what}"
            for size in (few, many)
            for what in ("hold median", "p99", "longest", "CPU p99", "a firing waits p99", "in all")
        ),
        f"of {LONGEST * 1e3:.0f} ms and more",
    )
    found: dict[int, list[str]] = {number: [] for number in range(len(ACTIONS))}
    longer, of = dict.fromkeys(found, 0), dict.fromkeys(found, 0)
    with firings(store) as waits_of:
        for singly in (False, True):
            for number, (name, setup, fields) in enumerate(ACTIONS):
                queue = setup(store, singles if singly else messages, singly)
                kept = len(store.view("slices", queue.name))
                first = setup(store, FIRST, singly)
                with console(store) as app:
                    asyncio.run(acted(app, store, first, name, fields))
                    began = time.monotonic()
                    ran = asyncio.run(acted(app, store, queue, name, fields))
                    waits = waits_of(began, time.monotonic())
                done, seconds, transactions = ran
                holds = np.array(transactions.holds) * 1e3
                figures = [
                    *np.percentile(holds[:, 0], (50, 99, 100)),
                    np.percentile(holds[:, 1], 99),
                    np.percentile(waits, 99) if len(waits) else np.nan,
                ]
                found[number] += [f"{each:.1f}" for each in figures] + [f"{seconds:.2f} s"]
                longer[number] += int((holds[:, 0] >= LONGEST * 1e3).sum())
                of[number] += len(holds)
                shown = " ".join(f"{each:.1f}" for each in figures)
                counts = f"{done:,} messages, {kept:,} slices, {len(holds)} transactions, "
                counts += f"{transactions.early} not late"
                print(f"{name} {fields}: {counts}, {len(waits)} firings: {shown}", flush=True)
                for each in (first, queue):
                    each.choose("all").delete()
    for number, (name, _, _) in enumerate(ACTIONS):
        table.add_row(name, *found[number], f"{longer[number]} of {of[number]}")
    table.show()


@contextmanager
def firings(
    store: Store, queue: str = "queue-0002"
) -> Iterator[Callable[[float, float], np.ndarray[Any, Any]]]:
    """
    Fire single messages of a queue in another process meanwhile.

    Yield a function that returns for how long the firings between two times have waited for the
    store, in milliseconds.
    """
    context = multiprocessing.get_context("spawn")
    ended, found = context.Event(), context.Queue()
    beside = context.Process(target=keep_firing, args=(store.address, queue, ended, found))
    beside.start()
    assert found.get() == []
    known: list[tuple[float, float]] = []

    def waits(first: float, last: float) -> np.ndarray[Any, Any]:
        # What the process has sent by now, and a bit more.
        time.sleep(2 * SENT_SECONDS)
        while not found.empty():
            known.extend(found.get())
        return np.array([wait * 1e3 for at, wait in known if first <= at <= last])

    yield waits
    ended.set()
    while beside.is_alive():
        while not found.empty():
            found.get()
        time.sleep(0.05)


def keep_firing(address: Address, name: str, ended: Any, found: Any) -> None:
    """Fire single messages and put them back; send when each began, and how long it waited."""
    with Store(address) as store:
        kind, queue = type(dialect.of(store.catalog.engine)), store.queue(name)
        begin, latest = kind.begin, [0.0]

        def begin_noted(self: Any, connection: Any, *, write: bool, **how: Any) -> None:
            began = time.perf_counter()
            begin(self, connection, write=write, **how)
            if write:
                latest.append(time.perf_counter() - began)

        waits: list[tuple[float, float]] = []
        sent = time.monotonic()
        with mock.patch.object(kind, "begin", begin_noted):
            fired(queue)
            found.put([])
            while not ended.is_set():
                latest.clear()
                at = time.monotonic()
                firing = queue.fire(1)
                waits.append((at, sum(latest)))
                queue.reload(firing)
                time.sleep(0.002)
                if time.monotonic() - sent > SENT_SECONDS:
                    found.put(waits)
                    waits, sent = [], time.monotonic()


async def acted(
    app: Any, store: Store, queue: Queue, name: str, fields: dict[str, Any]
) -> tuple[int, float, Any]:
    """Run an action as a script does; return the messages, the seconds and the transactions."""
    client = await logged_in(app)
    await client.get("/")
    path = f"/api/queues/{queue.name}/actions/{name}"
    query = "&".join(f"{field}={value}" for field, value in fields.items())
    shown = json_of(await client.get(f"{path}?{query}"))
    body = fields | {"expected": shown["messages"], "confirm": queue.name}
    with noted(store) as transactions:
        answer = await client.post(path, body)
    return json_of(answer)["messages"], answer.seconds, transactions


def waiting(store: Store, messages: int, singly: bool) -> Queue:
    """Return a queue with messages that wait: each a slice of its own, or few large slices."""
    name = f"acted-{time.monotonic_ns()}"
    if singly:
        return make(store, name, messages)
    queue = store.create_queue(name, SCHEMA, shards=32)
    queue.load(pa.table({"number": np.arange(messages)}))
    return queue


def sidelined(store: Store, messages: int, singly: bool) -> Queue:
    """Return a queue with messages in its sideline, which have failed."""
    queue = waiting(store, messages, singly)
    while len(firing := queue.fire(10_000)):
        queue.sideline(firing, reason="no such customer")
    return queue


def stuck(store: Store, messages: int, singly: bool) -> Queue:
    """Return a queue with messages in flight that nobody will settle."""
    queue = waiting(store, messages, singly)
    while len(queue.fire(10_000)):
        pass
    ago = update(slices).where(slices.c.queue_id == queue.info.id)
    store.catalog.write(lambda c: c.execute(ago.values(fired_at=slices.c.fired_at - 10**8)))
    return queue


Setup = Callable[[Store, int, bool], Queue]
SELECTED = {"selector": "number>=0"}
ACTIONS: tuple[tuple[str, Setup, dict[str, Any]], ...] = (
    ("delete", waiting, SELECTED),
    ("sideline", waiting, SELECTED),
    ("redrive", sidelined, {"force": 1} | SELECTED),
    ("reload", stuck, SELECTED),
    ("sweep", stuck, {"older_than": 10}),
)


def json_of(answer: Any) -> Any:
    """Return the JSON of a good answer."""
    assert answer.status == 200, answer.body[:1000]
    return json.loads(answer.body)


class Rows:
    """A table in Markdown, which is printed at its end; each row is also shown at once."""

    def __init__(self, *columns: str) -> None:
        self._lines = [columns, ["---"] * len(columns)]

    def add_row(self, *cells: str) -> None:
        """Add a row."""
        self._lines.append(cells)
        print(*cells, sep=", ", flush=True)

    def show(self) -> None:
        """Print the table."""
        print("", *("| " + " | ".join(line) + " |" for line in self._lines), "", sep="\n")


def main() -> None:
    """Measure the rows that were asked for."""
    rows = ("pages", "viewers", "firing", "actions")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_names(parser, "rows", rows)
    add_catalog(parser)
    parser.add_argument("--folder", help="keep the store in it, and use it again")
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--slices", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=100_000, help="of an action, in few slices")
    parser.add_argument("--singles", type=int, default=10_000, help="each in a slice of its own")
    parser.add_argument("--rounds", type=int, default=50, help="requests for each page")
    parser.add_argument("--seconds", type=float, default=20.0, help="of viewers and firings")
    given = parser.parse_args()
    wanted = given.rows
    with ExitStack() as stack:
        folder = given.folder or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="ignis-console-", dir=".")
        )
        address = stack.enter_context(address_in(folder, given))
        store = stack.enter_context(Store(address))
        if LARGE not in store.queues():
            began = time.monotonic()
            fill(store, given.queues, given.slices)
            passed = time.monotonic() - began
            print(f"{given.queues:,} queues, {given.slices:,} slices: made in {passed:.0f} s")
        if "pages" in wanted:
            pages(store, given.rounds)
        if "viewers" in wanted:
            viewers(store, given.seconds)
        if "firing" in wanted:
            firing(store, given.seconds)
        if "actions" in wanted:
            actions(store, given.messages, given.singles)
        if given.catalog and not given.folder:
            for table in metadata.tables:
                run(store, f"DROP TABLE {table} CASCADE")


if __name__ == "__main__":
    main()
