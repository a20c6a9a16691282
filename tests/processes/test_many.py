"""Many processes at work on one store at once: no message lost or doubled, no call refused."""

from __future__ import annotations

from collections import defaultdict

import pytest
from sqlalchemy import text

from queue_core import Store
from tests.books import audit, leftover_files
from tests.processes import roles
from tests.processes.ensemble import Ensemble
from tests.processes.journals import check_order, count
from tests.processes.roles import Scene

pytestmark = pytest.mark.crash

DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
#: Nobody may ever wait for as long as this, after which SQLite would give up.
LONGEST_SECONDS = 60.0


@pytest.mark.parametrize(
    ("loads", "kills"),
    [
        pytest.param(40, 0, id="undisturbed", marks=pytest.mark.slow),
        # In the gate, the one that shows more.
        pytest.param(60, 20, id="with kills"),
        pytest.param(1000, 0, id="undisturbed, large", marks=pytest.mark.slow),
        pytest.param(1000, 200, id="with kills, large", marks=pytest.mark.slow),
    ],
)
def test_an_ensemble(loads, kills, address, store, tmp_path):
    store.create_queue("ensemble", roles.SCHEMA, shards=8, key="key")
    folder = tmp_path / "ensemble"
    folder.mkdir()
    ensemble = Ensemble(Scene(address, folder), loads=loads, seed=loads + kills)

    ensemble.run(store, kills=kills)

    counts = count(ensemble)
    print(f"\n{counts}; {report(ensemble)}")
    assert counts.lost == 0
    assert counts.unexpected == 0
    assert counts.duplicated == 0
    assert counts.ok == counts.acknowledged + counts.recovered
    if not kills:
        assert counts.attempt == counts.acknowledged
        if not any(ensemble.entries("unread")):
            # Of what was not read, nobody has written down that it was fired.
            assert check_order(ensemble) > counts.ok // 2
    check_end(store, counts.ok)
    check_waits(ensemble, store)


def check_end(store: Store, loaded: int) -> None:
    """Each message is deleted once, and no file is left."""
    books = audit(store)
    assert books.ids() == set()
    assert books.deleted == loaded
    store.vacuum(grace=0)
    assert leftover_files(store) == set()


def check_waits(ensemble: Ensemble, store: Store) -> None:
    """No process starved, and the database never had to choose a victim."""
    assert max(entry["seconds"] for entry in ensemble.entries("took")) < LONGEST_SECONDS
    refused = [entry["why"] for entry in ensemble.entries("refused by the database")]
    assert refused == []
    if store.catalog.file is None:
        with store.catalog.read() as connection:
            assert connection.scalar(DEADLOCKS) == 0


def report(ensemble: Ensemble) -> str:
    seconds = defaultdict(list)
    for entry in ensemble.entries("took"):
        seconds[entry["verb"]].append(entry["seconds"])
    told = [
        f"{verb} {len(times)} times, p99 {1e3 * sorted(times)[len(times) * 99 // 100]:.0f} ms, "
        f"at most {1e3 * max(times):.0f} ms"
        for verb, times in sorted(seconds.items())
    ]
    sums = defaultdict(int)
    for entry in ensemble.entries("shovelled", "rescued", "compacted", "removed"):
        for name, value in entry.items():
            if name != "what":
                sums[entry["what"] + "/" + name] += value
    sums["publications refused"] = sum(1 for _ in ensemble.entries("refused"))
    return "; ".join([*told, f"{dict(sums)}", f"{ensemble.kills} kills"])
