"""What the first actions of a console would do within their transactions, and do at its start."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy import event
from sqlalchemy.sql.compiler import SQLCompiler

from ignis_console.app import create_app
from ignis_console.config import ConsoleOptions
from ignis_console.rehearsal import Rehearsal
from queue_core import Queue, Store
from queue_core.values.address import Address
from tests.children import Child
from tests.dump import dump
from tests.factories import make_queue, orders


def aside(queue: Queue) -> None:
    queue.sideline(queue.fire("all"), reason="no such customer")


ACTS: dict[str, tuple[Callable[[Queue], object] | None, Callable[[Queue], object]]] = {
    "delete": (None, lambda queue: queue.choose(None, "number >= 0").delete()),
    "sideline": (None, lambda queue: queue.choose(None, "number >= 0").sideline("no")),
    "requeue": (aside, lambda queue: queue.choose(None, "number >= 0", "sideline").requeue()),
    "reload": (
        lambda queue: queue.fire("all"),
        lambda queue: queue.choose(None, "number >= 0").reload(dead_after=0),
    ),
    "shovel": (aside, lambda queue: queue.shovel(force=True)),
    "shovel some": (aside, lambda queue: queue.shovel(9, selector="number >= 0", force=True)),
    "sweep": (lambda queue: queue.fire("all"), lambda queue: queue.sweep(0, dead_after=0)),
    "pause": (None, lambda queue: queue.pause()),
    "resume": (lambda queue: queue.pause(), lambda queue: queue.resume()),
    "scale": (None, lambda queue: queue.change_settings(concurrency=3)),
}


def act(address: Address, prepared: bool, found: Path) -> None:
    """Do each act on a queue of one slice, and of many; note what was compiled meanwhile."""
    compiled: dict[str, list[str]] = {}
    with Store(address) as store:
        if prepared:
            rehearsal = Rehearsal(store.catalog)
            rehearsal.start()
            rehearsal.wait()
        begin = SQLCompiler.__init__
        for number, (name, (setup, run)) in enumerate(ACTS.items()):
            for slices in (1, 40):
                queue = make_queue(store, f"queue-{number}-{slices}", shards=min(slices, 4))
                for first in range(0, 2 * slices, 2):
                    queue.load(orders(2, first))
                if setup is not None:
                    setup(queue)
                here = compiled.setdefault(f"{name} {slices}", [])

                def noted(self, *args, here=here, **options):
                    begin(self, *args, **options)
                    here.append(str(self))

                with mock.patch.object(SQLCompiler, "__init__", noted):
                    changed = run(queue)
                assert changed != 0, name
    found.write_text(json.dumps(compiled))


def compiled_by(address: Address, folder: Path, *, prepared: bool) -> dict[str, list[str]]:
    """Act in a process of its own: those of the tests share what they have compiled."""
    found = folder / "compiled.json"
    child = Child(act, address, prepared, found, log=folder / "child.log")
    assert child.wait() == 0, child.output()
    return json.loads(found.read_text())


def test_nothing_is_compiled_in_an_action_after_the_rehearsal(store, tmp_path):
    compiled = compiled_by(store.address, tmp_path, prepared=True)

    assert len(compiled) == 2 * len(ACTS)
    assert {name: texts for name, texts in compiled.items() if texts} == {}


def test_without_it_the_first_actions_compile_their_statements(store, tmp_path):
    compiled = compiled_by(store.address, tmp_path, prepared=False)

    assert sum(map(len, compiled.values())) > 40


def test_a_rehearsal_sends_no_statement_and_leaves_no_folder(store, queue, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, sent = dump(store), []
    event.listen(store.catalog.engine, "after_cursor_execute", lambda *given: sent.append(given))

    rehearsal = Rehearsal(store.catalog)
    rehearsal.start()
    rehearsal.wait()

    assert sent == []
    assert dump(store) == before
    assert [each.name for each in tmp_path.iterdir() if "rehearsal" in each.name] == []


@pytest.fixture
def _unfrozen():
    # Another test of this process may have opened a console.
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_unfrozen")
def test_a_console_that_is_closed_at_once_ends_its_rehearsal(store, queue):
    console = create_app(store, ConsoleOptions()).state.console
    console.prepare()

    console.close()

    assert store.queue("orders").choose("all").count() == 10


@pytest.mark.usefixtures("_unfrozen")
def test_garbage_is_not_sought_in_what_the_start_has_left(store):
    assert gc.get_freeze_count() == 0

    rehearsal = Rehearsal(store.catalog)
    rehearsal.start()
    rehearsal.wait()

    assert gc.get_freeze_count() > 10_000
