"""A short soak on a store: processes die and stand still, and nothing is lost."""

import json

import pytest
from sqlalchemy import text

from tests.books import audit, leftover_files
from tests.soak import cast, report
from tests.soak.__main__ import books
from tests.soak.cast import Part
from tests.soak.growth import Growth
from tests.soak.history import read
from tests.soak.nemesis import Kill
from tests.soak.roles import browse, fork, hurry, make_more_queues
from tests.soak.soak import Soak
from tests.soak.workload import QUEUES, Scene, consume, keep_house, produce

pytestmark = pytest.mark.crash


#: As long as a soak lasts; where processes are so slow that little is handed out, the next one.
SECONDS = (6, 30, 120)
NOTHING = "no message was loaded: give the soak more time"


#: Seconds for which vacuum leaves files alone: so few that it removes files of slow loads too.
GRACE = 0.5
DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


def soaked(address, folder, seconds, seed, *, undisturbed=False):
    trial = Soak(Scene(address, folder, prefix=f"soak_{seed}_", grace=GRACE), seed)
    return trial.run(seconds, [] if undisturbed else trial.faults())


def delivered(result):
    return sum(counts.delivered for counts in result.verdict.queues.values())


@pytest.mark.parametrize(
    "undisturbed",
    [
        # In the gate, the one that shows more.
        pytest.param(False, id="with faults"),
        # Order is judged where no fault explains another one.
        pytest.param(True, id="undisturbed", marks=pytest.mark.nightly),
    ],
)
def test_a_short_soak(store, tmp_path, undisturbed):
    for seed, seconds in enumerate(SECONDS, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        result = soaked(store.address, folder, seconds, seed, undisturbed=undisturbed)
        if delivered(result) > 1:
            break

    assert result.right, result.as_dict()
    check_end(store, folder)
    if undisturbed:
        return
    report.save(result, tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    assert sum(saved["faults"].values()) > 1
    assert saved["verdict"]["right"]
    assert len(store.view("queues")) == seed * len(QUEUES)


def check_end(store, folder):
    """No message and no file is left, and the database never had to choose a victim."""
    assert audit(store).ids() == set()
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()
    assert store.admin.fsck(deep=True).num_rows == 0
    assert [entry for entry in read(folder) if entry["what"] == "refused by the database"] == []
    if store.catalog.file is None:
        with store.catalog.read() as connection:
            assert connection.scalar(DEADLOCKS) == 0


#: The roles of a short soak of `tests.soak`, and its faults.
MORE = {
    "forks": ([fork, fork], []),
    "late handlers": ([hurry, consume, keep_house], []),
    "browsers": ([browse, browse, browse, produce], [Kill]),
    "growth": ([produce, consume, consume, hurry, keep_house], [Growth]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", MORE)
def test_a_short_soak_with_more_roles(kind, address, tmp_path):
    roles, faults = MORE[kind]
    for soaks, seconds in enumerate(SECONDS, 1):
        scene = Scene(address, tmp_path / str(soaks), prefix=f"soak-{soaks}-")
        scene.folder.mkdir()
        make_more_queues(scene)
        soak = Soak(scene, soaks, empty_seconds=30)
        soak.cast.parts = [Part(role) for role in roles]
        made = [Growth(address) if fault is Growth else fault(soak.cast) for fault in faults]
        result = soak.run(seconds, made, pause=seconds / 8)
        if NOTHING not in result.broken:
            break

    assert result.right, (result.verdict, result.broken)
    assert books(soak.scene) == []


@pytest.mark.nightly
def test_a_soak_that_has_loaded_nothing_has_shown_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr(cast, "ROLES", {keep_house: 1})

    result = soaked(store.address, tmp_path, 0.0, 4)

    assert not result.right
    assert NOTHING in result.broken
