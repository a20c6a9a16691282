"""When an instance leads by ZooKeeper; `tests/processes/test_leaders.py` asks a real one."""

from types import SimpleNamespace

import pytest
from kazoo.client import KazooState

from queue_core.upkeep.leader import zookeeper


@pytest.mark.parametrize("away", ["cut off", "suspended"])
def test_an_instance_that_was_away_leads_again_once_others_have_sent_heartbeats(monkeypatch, away):
    leader = zookeeper.ZooKeeperLeader("somewhere:2181", instance="one", every=0.2, session=8.0)
    ways = {"_join": None, "_stands_first": True, "_assign": None}
    for name, gives in (ways | {"_assignment": {"balancerId": "one"}}).items():
        monkeypatch.setattr(leader, name, lambda _, gives=gives: gives)
    client = SimpleNamespace(ensure_path=lambda _: None)
    now = [10**12]
    monkeypatch.setattr(zookeeper, "stopwatch", lambda: now[0])
    leader._refresh(client)
    assert leader.leads()

    if away == "cut off":
        leader._connection_changed(KazooState.SUSPENDED)
    else:
        now[0] += 60_000_000
    assert not leader.leads()

    for _ in range(3):
        leader._refresh(client)
        assert not leader.leads()
        now[0] += 6_000_000
    leader._refresh(client)
    assert leader.leads()
