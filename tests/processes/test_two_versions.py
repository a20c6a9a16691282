"""An older ignis and this one work on one store at once, as docs/versions.md says of an upgrade.

The older one is the code of a commit that has the same format.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Store
from tests.tree import ROOT

#: The code when the tables of format 3 were last changed.
OLDER = "6618b2fe4951883d2c441866a070c3e3a09cc97c"
#: Prints the format, the tables and their indexes.
TABLES = """
from sqlalchemy.schema import CreateIndex, CreateTable
from queue_core import Store
from queue_core.catalog.format import FORMAT
from queue_core.catalog.tables import metadata

print(FORMAT)
for table in metadata.sorted_tables:
    print(CreateTable(table), *sorted(str(CreateIndex(each)) for each in table.indexes))
"""
ROUNDS = 40
SCHEMA = pa.schema([("number", pa.int64()), ("customer", pa.string())])


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """The folder of the older code."""
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", OLDER, "queue_core"], capture_output=True
    )
    if archive.returncode:
        pytest.skip("the history is not here: this is no clone, or a shallow one")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def start(code: Path, job: dict) -> subprocess.Popen:
    """Start a process that runs the code of a folder."""
    script = Path(__file__).with_name("versions.py")
    return subprocess.Popen(
        [sys.executable, script, json.dumps(job)],
        env=os.environ | {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen) -> dict:
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return json.loads(output)


def printed(code: str, folder: Path) -> str:
    """Return what Python prints with the ignis of a folder."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_older_code_is_the_older_code(older):
    code = "import queue_core, sys; print(queue_core.__file__)"

    assert printed(code, older).strip() == str(older / "queue_core/__init__.py")


def test_the_older_code_has_the_same_tables(older):
    """Otherwise, `OLDER` must be the commit that last changed them."""
    assert printed(TABLES, older) == printed(TABLES, ROOT)


@pytest.mark.nightly
@pytest.mark.parametrize("last", ["older", "newer"])
def test_both_load_fire_and_settle_at_once(older, address, last, tmp_path):
    """Whichever of them ends last empties the queue."""
    with Store(address) as store:
        store.create_queue("shared", SCHEMA, key="customer", shards=4, retry=None)
    place = {"catalog": address.catalog, "storage": address.storage}

    def job(number: int, **more: object) -> dict:
        first = number * 100_000
        mine = {"name": f"p{number}", "first": first, "rounds": ROUNDS}
        return {"do": "work", "store": place, **mine, **more}

    codes = [older, ROOT, older, ROOT]
    processes = [start(code, job(number)) for number, code in enumerate(codes)]
    ended = [told(process) for process in processes]
    with Store(address) as store:
        store.queue("shared").shovel(force=True)
    code = older if last == "older" else ROOT
    ended.append(told(start(code, job(len(codes), pool=True))))

    loaded = Counter(number for each in ended for number in each["loaded"])
    deleted = Counter(number for each in ended for number in each["deleted"])
    with Store(address) as store:
        # What the last process has sidelined in its rounds.
        store.queue("shared").shovel(force=True)
        rest: list[int] = []

        def note(message: dict) -> bool:
            rest.append(message["number"])
            return True

        with ConsumerPool(store, "shared", note) as pool:
            assert pool.drain(60)
        left = store.view("queues").to_pylist()[0]
        findings = store.admin.fsck(deep=True)

    assert deleted + Counter(rest) == loaded
    assert set(loaded.values()) == {1}
    assert len(loaded) > 100 * len(codes)
    assert (left["waiting"], left["in_flight"], left["sidelined"]) == (0, 0, 0)
    assert findings.to_pylist() == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", ["older", "newer"])
def test_a_pool_of_one_version_gets_what_its_killed_life_of_the_other_held(older, address, first):
    codes = {"older": older, "newer": ROOT}
    with Store(address) as store:
        queue = store.create_queue("shared", SCHEMA, shards=2, retry=None)
        queue.load([{"number": n, "customer": "c"} for n in range(20)])
        queue.load([{"number": n, "customer": "c"} for n in range(20, 40)])
    place = {"catalog": address.catalog, "storage": address.storage}
    holding = start(codes[first], {"do": "hold", "store": place})
    assert holding.stdout.readline().strip() == "holds"
    holding.kill()
    holding.communicate()
    (then,) = {"older", "newer"} - {first}
    got = told(start(codes[then], {"do": "take over", "store": place}))

    assert sorted(got["deleted"]) == list(range(40))
    with Store(address) as store:
        assert store.admin.fsck(deep=True).to_pylist() == []
