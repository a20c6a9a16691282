"""Many processes at work on one store at once: nothing lost, nothing doubled, nobody refused."""

from __future__ import annotations

from collections import defaultdict

import pytest
from sqlalchemy import text

from queue_core import Store
from tests.books import audit, leftover_files
from tests.processes import roles
from tests.processes.campaign import Campaign
from tests.processes.roles import Scene
from tests.processes.verdict import check_order, judge

pytestmark = pytest.mark.crash

DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
#: Nobody may ever wait for longer; SQLite would give up after a minute.
LONGEST_SECONDS = 20.0


@pytest.mark.parametrize(
    ("loads", "kills"),
    [
        pytest.param(150, 0, id="undisturbed"),
        pytest.param(60, 20, id="with kills"),
        pytest.param(1000, 0, id="undisturbed, large", marks=pytest.mark.slow),
        pytest.param(1000, 200, id="with kills, large", marks=pytest.mark.slow),
    ],
)
def test_a_campaign(loads, kills, address, store, tmp_path):
    store.create_queue("campaign", roles.SCHEMA, shards=8, key="key")
    folder = tmp_path / "campaign"
    folder.mkdir()
    campaign = Campaign(Scene(address, folder), loads=loads, seed=loads + kills)

    campaign.run(store, kills=kills)

    verdict = judge(campaign)
    print(f"\n{verdict}; {report(campaign)}")
    assert verdict.lost == 0
    assert verdict.unexpected == 0
    assert verdict.duplicated == 0
    assert verdict.ok == verdict.acknowledged + verdict.recovered
    if not kills:
        assert verdict.attempt == verdict.acknowledged
        assert check_order(campaign) > verdict.ok // 2
    check_end(store, verdict.ok)
    check_waits(campaign, store)


def check_end(store: Store, loaded: int) -> None:
    """Each message is deleted once, and no file is left."""
    books = audit(store)
    assert books.ids() == set()
    assert books.deleted == loaded
    store.vacuum(grace=0)
    assert leftover_files(store) == set()


def check_waits(campaign: Campaign, store: Store) -> None:
    """Nobody starved, and the database never had to choose a victim."""
    assert max(entry["seconds"] for entry in campaign.entries("took")) < LONGEST_SECONDS
    refused = [entry["why"] for entry in campaign.entries("refused by the database")]
    assert refused == []
    if store.catalog.file is None:
        with store.catalog.read() as connection:
            assert connection.scalar(DEADLOCKS) == 0


def report(campaign: Campaign) -> str:
    seconds = defaultdict(list)
    for entry in campaign.entries("took"):
        seconds[entry["verb"]].append(entry["seconds"])
    told = [
        f"{verb} {len(times)} times, p99 {1e3 * sorted(times)[len(times) * 99 // 100]:.0f} ms, "
        f"at most {1e3 * max(times):.0f} ms"
        for verb, times in sorted(seconds.items())
    ]
    sums = defaultdict(int)
    for entry in campaign.entries("shovelled", "rescued", "compacted", "removed"):
        for name, value in entry.items():
            if name != "what":
                sums[entry["what"] + "/" + name] += value
    sums["publications refused"] = sum(1 for _ in campaign.entries("refused"))
    return "; ".join([*told, f"{dict(sums)}", f"{campaign.kills} kills"])
