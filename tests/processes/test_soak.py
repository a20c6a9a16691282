"""`ignis soak` on a store of the user's own: processes die and stand still, and nothing is lost."""

import json

import pytest
from typer.testing import CliRunner

from pyspark_ignis.cli import app
from pyspark_ignis.soak import cast
from pyspark_ignis.soak.cast import Part
from pyspark_ignis.soak.nemesis import Kill
from pyspark_ignis.soak.soak import Soak
from pyspark_ignis.soak.workload import QUEUES, Scene, consume, keep_house, produce
from queue_core import Store
from tests.soak.__main__ import books
from tests.soak.growth import Growth
from tests.soak.roles import browse, fork, hurry, make_more_queues

pytestmark = pytest.mark.crash


#: As long as a soak lasts; where processes are so slow that little is handed out, the next one.
SECONDS = (6, 30, 120)
NOTHING = "no message was loaded: give the soak more time"


def test_a_short_soak(address, tmp_path):
    report = tmp_path / "report.json"
    where = ["--catalog", address.catalog, "--storage", address.storage]

    for soaks, seconds in enumerate(SECONDS, 1):
        how = ["--time", f"{seconds}s", "--seed", str(soaks), "--report", str(report)]
        ran = CliRunner().invoke(app, [*where, "soak", *how])
        result = json.loads(report.read_text())
        delivered = sum(counts["delivered"] for counts in result["verdict"]["queues"].values())
        if delivered > 1 or not (ran.exit_code == 0 or NOTHING in ran.output):
            break

    assert ran.exit_code == 0, ran.output
    assert "every promise was kept" in ran.output
    assert sum(result["faults"].values()) > 1
    assert delivered > 1
    with Store(address) as store:
        queues = store.view("queues")
        assert len(queues) == soaks * len(QUEUES)
        assert None not in queues.column("deactivated_at").to_pylist()


#: The roles of a short soak of `tests.soak`, and its faults.
MORE = {
    "forks": ([fork, fork], []),
    "late handlers": ([hurry, consume, keep_house], []),
    "browsers": ([browse, browse, browse, produce], [Kill]),
    "growth": ([produce, consume, consume, hurry, keep_house], [Growth]),
}


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


def test_a_soak_that_has_loaded_nothing_has_shown_nothing(address, monkeypatch):
    monkeypatch.setattr(cast, "ROLES", {keep_house: 1})
    where = ["--catalog", address.catalog, "--storage", address.storage]

    ran = CliRunner().invoke(app, [*where, "soak", "--time", "0s", "--seed", "4"])

    assert ran.exit_code == 1
    assert NOTHING in ran.output
    assert "NOT as promised" in ran.output
