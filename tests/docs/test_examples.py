"""The applications in examples/ do what they say."""

import http.server
import importlib.util
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pyarrow as pa
import pytest

from queue_core import Store
from tests.tree import ROOT

EXAMPLES = sorted(ROOT.glob("examples/*.py"))
SITE = {
    "/": '<title>Home</title><a href="/a">a</a><a href="b">b</a>',
    "/a": '<title>A</title><a href="/">home</a><a href="http://elsewhere.example/">x</a>',
    "/b": '<title>B</title><a href="/c#top">c</a>',
    "/c": "<title>C</title>",
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / f"examples/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Handler(http.server.BaseHTTPRequestHandler):
    """A site with a page that fails once, and customers: one is well, one recovers, one is gone."""

    posts: list[str]
    failing: set[str]

    def do_GET(self) -> None:
        page = None if self.path in self.failing else SITE.get(self.path)
        self.failing.discard(self.path)
        self.send_response(200 if page else 404)
        self.end_headers()
        self.wfile.write((page or "").encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.posts.append(self.path)
        down = self.path == "/recovers" and self.posts.count("/recovers") <= 2
        self.send_response(503 if down else 410 if self.path == "/gone" else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.posts, Handler.failing = [], {"/b"}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_all_examples_are_listed():
    listed = ROOT.joinpath("examples/README.md").read_text()

    assert [file.name for file in EXAMPLES if f"({file.name})" not in listed] == []


def test_transfers_are_booked_once_and_in_order(tmp_path):
    ledger = example("ledger")

    balances = ledger.main(str(tmp_path / "store"))

    assert sum(balances.values()) == 1000
    assert balances["ada"] in range(0, 100)
    assert ledger.main(str(tmp_path / "store")) == balances, "each transfer is loaded once"


#: Books transfers in a process that is killed by the first one.
KILLED = """
import os, sys

from tests.docs.test_examples import example


def transfer(message, connection):
    os._exit(9)


ledger = example("ledger")
ledger.transfer = transfer
ledger.main(sys.argv[1])
"""


def test_transfers_that_a_killed_process_held_are_booked_by_the_next_one(tmp_path):
    path = str(tmp_path / "store")
    killed = subprocess.run([sys.executable, "-c", KILLED, path], cwd=ROOT, timeout=60)

    assert killed.returncode == 9
    assert example("ledger").main(path) == {"ada": 30, "bob": 970}


def test_each_page_of_a_site_is_read_once(tmp_path, server):
    titles = example("crawler").main(str(tmp_path / "store"), f"{server}/")

    assert titles == {f"{server}{path}": page[7:].split("<")[0] for path, page in SITE.items()}


def test_a_cancelled_reminder_is_not_sent(tmp_path):
    assert example("reminders").main(str(tmp_path / "store"), seconds=1) == ["ada", "eve"]


def test_webhooks_are_tried_again_and_given_up_beside_another_queue(tmp_path, server):
    path = str(tmp_path / "store")
    with Store.open(path) as store:
        store.create_queue("another", pa.schema([("number", pa.int64())]))
    urls = {name: f"{server}/{name}" for name in ("well", "recovers", "gone")}

    counts = example("webhooks").main(path, urls, events=2)

    assert counts["deleted"] == 4
    assert counts["dead"] == 2
    assert Handler.posts.count("/well") == 2


@pytest.mark.nightly
def test_orders_are_joined_and_summed_up(tmp_path, spark):
    revenue = example("revenue")

    assert revenue.main(str(tmp_path / "store"), spark) == {"food": 50_000, "toys": 50_000}


@pytest.mark.parametrize("given", [[], ["--help"]])
@pytest.mark.parametrize("name", [file.stem for file in EXAMPLES])
def test_an_example_without_its_arguments_prints_its_usage(name, given, tmp_path, monkeypatch):
    program = str(ROOT / f"examples/{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [program, *given])

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(program, run_name="__main__")

    # Python writes a text to stderr, and ends with 1.
    said = ended.value.code
    assert isinstance(said, str)
    assert said.startswith(f"usage: python examples/{name}.py FOLDER")
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    usage = said.removeprefix("usage: ").split()
    (shown,) = [
        line.split()
        for line in ROOT.joinpath(f"examples/{name}.py").read_text().splitlines()
        if line.startswith("    python ")
    ]
    assert len(shown) == len(usage), "the docstring shows a call with all arguments"
