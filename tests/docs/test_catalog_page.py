"""docs/catalog.md is enough for a reader without ignis, and shows the statements that are sent."""

import ast
import shutil
import sys
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from queue_core import Store
from queue_core.catalog.format import FORMAT
from queue_core.catalog.tables import id_map, segments
from queue_core.segments import stager
from scripts import catalog_page
from tests.docs.test_examples import example
from tests.factories import load_singly, make_queue, numbers_of, orders
from tests.golden.make import folder_of
from tests.tree import ROOT

READER = ROOT / "examples/plain_reader.py"
reader = example("plain_reader")


def in_files(queue, table):
    """Load rows into files of small chunks."""
    with mock.patch.multiple(stager, INLINE_BYTES=0, CHUNK_ROWS=16):
        queue.load(table)


def kinds(store, column):
    """How many segments have a value in a column, and how many have none."""
    with store.catalog.read() as connection:
        values = connection.scalars(segments.select().with_only_columns(column)).all()
    return len(values) - values.count(None), values.count(None)


def agree(folder, store, name):
    """Whether the reader lists what the queue's own browser shows of the waiting messages."""
    found = reader.waiting(str(folder), name)
    browsed = store.queue(name).browse()
    here = pc.is_in(browsed.column("_message_id"), found.column("_message_id"))
    assert found.equals(browsed.filter(here)), name
    (row,) = store.view("queues", name).to_pylist()
    assert found.num_rows == row["waiting"]
    return found


def test_a_reader_without_ignis_lists_the_waiting_messages(tmp_path):
    with Store.open(tmp_path) as store:
        queue = make_queue(store, shards=3, key="customer")
        assert agree(tmp_path, store, "orders").num_rows == 0
        # Inlined segments, and a compacted one that has gaps.
        load_singly(queue, 300)
        queue.delete(queue.fire(90, selector="number % 3 = 0"))
        assert queue.admin.compact() > 0
        # Columns that were added later, to files too.
        in_files(queue, orders(200, 300))
        queue.admin.change_settings(compression="zstd")
        queue.admin.add_columns(pa.schema([("_row", pa.string()), ("tags", pa.list_(pa.int64()))]))
        rows = orders(200, 500).append_column("tags", [[[number, None] for number in range(200)]])
        in_files(queue, rows)
        queue.load([{"number": 700, "customer": "late", "_row": "x", "tags": []}])
        # Slices that are split, in flight, fired before, and back in main at its tail.
        firing = queue.fire(80, selector="number % 7 = 1")
        queue.delete(firing.ids[:20])
        queue.reload(firing.ids[20:40])
        queue.sideline(firing.ids[40:60])
        queue.shovel(10)

        assert min(*kinds(store, segments.c.file), *kinds(store, segments.c.data)) > 0
        with store.catalog.read() as connection:
            assert connection.execute(id_map.select()).first() is not None
        found = agree(tmp_path, store, "orders")

    in_flight = set(numbers_of(firing.messages)[60:])
    assert len(in_flight) == 20
    assert not in_flight & set(numbers_of(found))


def test_the_reader_reads_the_golden_store(tmp_path):
    shutil.copytree(folder_of(FORMAT), tmp_path / "store")

    with Store.open(tmp_path / "store", create=False) as store:
        # Of a subscription, it lists only what was taken in.
        names = {*store.queues()} - {"reader"}
        found = {name: agree(tmp_path / "store", store, name) for name in names}

    assert sum(table.num_rows for table in found.values()) > 100


def test_the_reader_is_short_and_imports_nothing_of_ignis():
    tree = ast.parse(READER.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert len(READER.read_text().splitlines()) <= 200
    assert imported - sys.stdlib_module_names == {"pyarrow", "pyroaring"}


def test_the_page_shows_what_is_sent_to_postgresql(postgres):
    with postgres.database() as url:
        made = catalog_page.on_postgresql(url)

    assert catalog_page.PAGE.read_text().endswith(made), "run `python -m scripts.catalog_page`"


@pytest.mark.parametrize("name", ["order", "orders; DROP TABLE queues"])
def test_the_reader_names_a_queue_that_is_not_there(tmp_path, name):
    with Store.open(tmp_path) as store:
        make_queue(store)

    with pytest.raises(SystemExit, match=f"there is no queue '{name}'"):
        reader.waiting(str(tmp_path), name)
