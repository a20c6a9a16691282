"""`ignis work`: a pool without a script."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ignis_cli import commands_work
from ignis_cli.invocation import Invocation
from ignis_cli.supervising import Supervisor
from queue_core import ConsumerPool
from queue_core.errors import CatalogUnavailable
from tests.command_line import answer, refusal
from tests.factories import main, make_filled, make_queue, numbers_of, orders
from tests.waiting import until

SHOP = """
import gc
import os
import pathlib
import time
from queue_core import batch_handler

def charge(order):
    if order["number"] == 3:
        raise ValueError("card declined")
    return True

@batch_handler
def ship(orders):
    return [True] * orders.num_rows

class Desk:
    def handle(self, order):
        return True

def slow(order):
    pathlib.Path(f"thresholds-{os.getpid()}").write_text(str(gc.get_threshold()))
    time.sleep(0.01)
    return True

desk = Desk()

def copy(order):
    return charge(order) and {"number": order["number"]}

def slow_copy(order):
    time.sleep(0.01)
    return {"number": order["number"]}

def tell(order):
    print("order", order["number"], flush=True)
    return True

def fatal(order):
    if order["number"] == 3:
        os.kill(os.getpid(), 9)
    return True

def stuck(order):
    pathlib.Path(f"stuck-{os.getpid()}").touch()
    time.sleep(60)
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with the module `shop_of_test`, which is the current one."""
    (tmp_path / "shop_of_test.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("shop_of_test", None)


def started(address, handler, *args, as_json=True):
    """`ignis work` on the orders, in a process of its own."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "ignis_cli", *(["--json"] if as_json else [])),
            *("--catalog", address.catalog, "--storage", address.storage),
            *("work", f"shop_of_test:{handler}", "--queue", "orders", *args),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip


def test_it_works_until_no_message_is_left(ignis, store, shop):
    queue, other = make_queue(store), make_queue(store, "refunds")
    queue.load(orders(5))
    other.load(orders(2, 7))

    said = ignis(
        "work", "shop_of_test:charge", "--queue", "orders", "--queue", "refunds", "--workers", 2,
        "--max-bytes", 100,
        "--drain", "--json",
    )  # fmt: skip

    assert answer(said) == [{"deleted": 6, "sidelined": 1}]
    assert numbers_of(queue.browse(magazine="sideline")) == [3]


@pytest.mark.parametrize("handler", ["ship", "desk", "desk.handle"])
def test_every_kind_of_handler_is_found(ignis, store, shop, handler):
    make_queue(store).load(orders(5))

    path = f"shop_of_test:{handler}"
    assert "5 deleted" in ignis("work", path, "--queue", "orders", "--drain").stdout
    assert "no message was handled" in ignis("work", path, "--queue", "orders", "--drain").stdout


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("shop_of_test", "--queue", "orders"), "write MODULE:HANDLER"),
        (("shop_of_test:charg", "--queue", "orders"), "has no attribute 'charg'"),
        (("no_such_shop:charge", "--queue", "orders"), "No module named 'no_such_shop'"),
        (("shop_of_test:SHOP", "--queue", "orders"), "cannot be imported"),
        (("shop_of_test:charge", "--queue", "ordrs"), "did you mean 'orders'"),
        (("shop_of_test:charge", "--queue", "orders", "--stop-after", "x"), "--stop-after x"),
    ],
)
def test_what_cannot_work_is_refused(ignis, store, shop, args, why):
    make_queue(store)

    assert why in refusal(ignis("work", *args))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param([], id="waiting"),
        pytest.param(["--drain"], id="draining", marks=pytest.mark.nightly),
    ],
)
def test_a_signal_ends_it_and_nothing_stays_in_flight(store, address, shop, how):
    make_filled(store, 2000, shards=2)
    process = started(address, "slow", "--workers", "2", "--batch", "10", *how)
    until(lambda: sum(store.view("shards")["deleted"].to_pylist()))
    process.send_signal(signal.SIGTERM)
    said, log = process.communicate(timeout=60)

    assert process.returncode == 0, log
    (row,) = store.view("queues").to_pylist()
    assert f'"deleted": {2000 - row["waiting"]}' in said
    assert (row["in_flight"], row["sidelined"]) == (0, 0)
    assert 0 < row["waiting"] < 2000
    # The garbage of a handler is collected as usual.
    assert Path(f"thresholds-{process.pid}").read_text() == str(gc.get_threshold())


def test_rows_of_a_handler_go_to_the_output(ignis, store, shop):
    queue = make_queue(store)
    results = store.create_queue("results", queue.schema)
    queue.load(orders(10))

    said = ignis(
        "work", "shop_of_test:copy", "--queue", "orders", "--output", "results", "--drain",
        "--selector", "number < 8", "--retry", "Retry(attempts=1)", "--breaker", '{"of": 50}',
        "--json",
    )  # fmt: skip

    assert answer(said) == [{"deleted": 7, "sidelined": 1}]
    assert main(results) == [0, 1, 2, 4, 5, 6, 7]
    assert store.view("sideline").column("dead").to_pylist() == [True]


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--output", "result", "did you mean 'results'"),
        ("--retry", "often", "write it as Retry"),
        ("--breaker", "50", "give a JSON object"),
        ("--processes", "0", "greater than or equal to 1"),
        ("--processes", "1025", "less than or equal to 1024"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_a_process_starts(
    ignis, store, shop, option, value, why
):
    store.create_queue("results", make_queue(store).schema)
    args = ("--processes", 2, option, value)
    assert why in refusal(ignis("work", "shop_of_test:copy", "--queue", "orders", *args))


def start_two(address, handler="slow_copy"):
    """A supervisor of two processes that copy orders."""
    how = ("--processes", "2", "--output", "results", "--batch", "5")
    return started(address, handler, "--workers", "1", *how)


@pytest.mark.parametrize("ending", ["killed", "asked twice"])
def test_no_process_outlives_its_supervisor(store, address, shop, ending):
    queue = make_queue(store, shards=4)
    results = store.create_queue("results", queue.schema)
    queue.load(orders(3000))
    process = start_two(address, "slow_copy" if ending == "killed" else "stuck")
    until(lambda: len(psutil.Process(process.pid).children()) == 2)
    children = psutil.Process(process.pid).children()
    if ending == "killed":
        until(lambda: results.browse().num_rows > 20)
        process.kill()
    else:
        # A process whose handlers have not begun may end at once.
        until(lambda: all(Path(f"stuck-{child.pid}").exists() for child in children))
        process.terminate()
        time.sleep(0.5)
        assert all(psutil.pid_exists(child.pid) for child in children)
        process.terminate()
    process.communicate(timeout=60)

    _, left = psutil.wait_procs(children, timeout=20)
    assert left == []
    done = numbers_of(results.browse())
    assert len(done) == len(set(done))
    if ending == "killed":
        # They ended as after SIGTERM: nothing is in flight.
        assert sorted([*done, *numbers_of(queue.browse())]) == list(range(3000))


@pytest.mark.nightly
def test_processes_that_are_asked_beside_their_supervisor_end_as_usual(store, address, shop):
    """As by systemd, which sends SIGTERM to all processes of a service."""
    queue = make_queue(store, shards=4)
    results = store.create_queue("results", queue.schema)
    queue.load(orders(3000))
    process = start_two(address)
    until(lambda: results.browse().num_rows > 20)
    until(lambda: len(store.view("consumers")) == 2)
    for each in [*psutil.Process(process.pid).children(), process]:
        each.send_signal(signal.SIGTERM)
    said, log = process.communicate(timeout=120)

    assert process.returncode == 0, log
    done = numbers_of(results.browse())
    assert f'"deleted": {len(done)}' in said
    (row,) = store.view("queues", "orders").to_pylist()
    assert row["in_flight"] == 0
    assert sorted([*done, *numbers_of(queue.browse())]) == list(range(3000))


@pytest.mark.parametrize(("supervised", "code"), [(True, 1), (False, 2)])
def test_a_process_that_begins_during_an_outage_is_one_that_died(
    ignis, store, shop, monkeypatch, supervised, code
):
    """Its supervisor takes a refusal for the end of all processes, as no other one could work."""

    def gone(pool):
        raise CatalogUnavailable("the server is away")

    make_queue(store)
    monkeypatch.setattr(ConsumerPool, "start", gone)
    monkeypatch.setattr(commands_work, "be_asked_once", lambda: None)
    if supervised:
        monkeypatch.setenv("IGNIS_SUPERVISOR_COUNTS", "0")

    said = ignis("work", "shop_of_test:charge", "--queue", "orders")

    assert said.exit_code == code
    assert "the server is away" in said.stderr


def test_what_handlers_print_is_seen_beside_the_counts(store, address, shop):
    make_queue(store, shards=4).load(orders(40))
    process = started(address, "tell", "--drain", "--processes", "2", as_json=False)
    said, log = process.communicate(timeout=120)

    assert process.returncode == 0, log
    *printed, last = said.splitlines()
    assert sorted(printed) == sorted(f"order {number}" for number in range(40))
    assert last == "40 deleted"
    assert "Traceback" not in log


def test_processes_write_their_log_as_their_supervisor_does(ignis, store, shop, monkeypatch):
    begun = []

    def noted(invocation, commands):
        begun.extend(commands)
        return Supervisor(invocation, [])

    make_queue(store)
    monkeypatch.setattr(commands_work, "Supervisor", noted)
    how = ("--processes", 2, "--log-format", "json")
    assert ignis("work", "shop_of_test:charge", "--queue", "orders", *how).exit_code == 0

    assert ["--log-format=json" in arguments for arguments in begun] == [True, True]


def test_processes_that_die_are_started_again(store, address, shop):
    queue = make_queue(store, shards=4)
    results = store.create_queue("results", queue.schema)
    queue.load(orders(3000))
    process = start_two(address)
    children = []

    def found():
        children[:] = psutil.Process(process.pid).children()
        return len(children) == 2

    until(found)
    until(lambda: results.browse().num_rows > 20)
    victim = children[0].pid
    os.kill(victim, signal.SIGKILL)
    until(lambda: found() and victim not in {child.pid for child in children})
    there = results.browse().num_rows
    until(lambda: results.browse().num_rows > there + 50)
    process.send_signal(signal.SIGTERM)
    said, log = process.communicate(timeout=120)

    assert process.returncode == 0, log
    assert f"process {victim} was killed by signal 9; another starts in 0.5 s" in log
    assert '"deleted": ' in said
    done, left = numbers_of(results.browse()), queue.browse()
    assert len(done) == len(set(done))
    assert not set(done) & set(numbers_of(left))
    assert len(done) + left.num_rows == 3000
    # Messages of the killed process came back with its name, and nothing stays in flight.
    (row,) = store.view("queues", "orders").to_pylist()
    assert row["sidelined"] == 0


def test_a_process_that_cannot_start_is_started_later(monkeypatch, caplog):
    start, tried = subprocess.Popen, []

    def fails_once(*given, **how):
        tried.append(given)
        if len(tried) == 1:
            raise BlockingIOError("no memory")
        return start(*given, **how)

    monkeypatch.setattr(subprocess, "Popen", fails_once)
    supervisor = Supervisor(Invocation(None, None, None), [["--version"]])
    supervisor.run(1.0)

    assert len(tried) == 2
    assert "a process cannot start: no memory; another starts in 0.5 s" in caplog.text


@pytest.mark.nightly
def test_one_process_that_dies_is_started_again_too(store, address, shop):
    queue = make_filled(store, 5)
    how = ("--drain", "--processes", "1", "--workers", "1", "--batch", "1", "--name", "till")
    process = started(address, "fatal", *how, as_json=False)
    said, log = process.communicate(timeout=120)

    assert process.returncode == 0, log
    assert "working on orders in 1 process; Ctrl-C ends" in log
    assert "processes that died had done" in said
    assert numbers_of(queue.browse(magazine="sideline")) == [3]
    assert queue.browse().num_rows == 0
    assert store.view("consumers").column("consumer").to_pylist() == ["till-1"]
