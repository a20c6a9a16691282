"""Three instances, each a process: one sweeps; if it dies, another does; without a judge, none.

By the catalog's lease and by a real ZooKeeper alike. Each instance says in its journal when it
begins to lead and when it no longer does, and sweeps for as long as it leads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from queue_core import Store
from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import leases
from queue_core.errors import BadOption, NotLeading
from queue_core.support.loop import Loop
from queue_core.upkeep.leader import Candidate, candidate
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.leader.zookeeper import ZooKeeperLeader
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.task import Timing
from queue_core.values.address import Address
from tests.children import PATIENCE, Child, Journal
from tests.dump import backdate
from tests.factories import make_queue, orders
from tests.storages import ONLY_SQLITE
from tests.waiting import until

INSTANCES = ("one", "two", "three")
QUEUES = ("orders", "parcels")


def by_lease(store: Store, name: str, _: str) -> Candidate:
    # Long: a process may pause. `end_lease` ends it.
    return LeaseLeader(store.catalog, holder=name, ttl=2 * PATIENCE, every=0.1)


def by_zookeeper(store: Store, name: str, hosts: str) -> Candidate:
    return ZooKeeperLeader(hosts, instance=name, partitions=lambda: QUEUES, every=0.2, session=8.0)


def work(make: Callable[..., Candidate], address: Address, name: str, hosts: str, journal: Journal):
    """Sweep whenever this instance leads, until it is killed."""
    with Store(address) as store:
        leader = make(store, name, hosts)
        leader.start()
        tasks = SideTasks(
            store.catalog, store.storage, leader, tasks=["sweep"], timings={"sweep": Timing(0.0)}
        )
        led = False
        while True:
            if leader.leads() != led:
                led = not led
                journal.write("leads" if led else "follows", at=time.monotonic())
            for ran in tasks.run_due([store.queue("orders").info]):
                journal.write("ran", moved=ran.moved, error=repr(ran.error))
            time.sleep(0.02)


class Instances:
    """The processes and their output."""

    def __init__(self, make: Callable[..., Candidate], address: Address, hosts: str, folder: Path):
        self.journals = {name: Journal(folder / name) for name in INSTANCES}
        self.children = {
            name: Child(
                work, make, address, name, hosts, self.journals[name], log=folder / f"{name}.log"
            )
            for name in INSTANCES
        }

    def leading(self) -> list[str]:
        """The living instance that last said that it leads."""
        said = {name: self.journals[name].read("leads", "follows") for name in self.children}
        return [name for name, lines in said.items() if lines and lines[-1]["what"] == "leads"]

    def wait_for(self, count: int) -> list[str]:
        """Wait until *count* instances lead."""
        until(lambda: len(self.leading()) == count)
        return self.leading()

    def kill(self, name: str) -> None:
        self.children.pop(name).kill()

    def close(self) -> None:
        for child in self.children.values():
            child.kill()


@pytest.fixture
def queue(store):
    return make_queue(store)


def stuck(store, queue, count):
    queue.load(orders(count))
    queue.fire("all")
    backdate(store, 7200)


def end_lease(store):
    """Let the lease of a dead leader end soon."""
    soon = update(leases).values(ends_at=dialect.now() + 500_000)
    store.catalog.write(lambda connection: connection.execute(soon))


def swept(queue):
    return queue.browse(magazine="sideline").num_rows


def ran(instances):
    """Which instances have swept; they write it down after the sweep."""
    return [name for name in INSTANCES if instances.journals[name].read("ran")]


def one_sweeps_and_then_another(store, queue, instances, then):
    """The one that leads is killed, and *then* is called."""
    (first,) = instances.wait_for(1)
    stuck(store, queue, 5)
    until(lambda: swept(queue) == 5)
    until(lambda: ran(instances) == [first])

    instances.kill(first)
    then()

    (second,) = instances.wait_for(1)
    stuck(store, queue, 3)
    until(lambda: swept(queue) == 8)
    assert second != first


def gather(make, address, hosts, folder) -> Iterator[Instances]:
    folder.mkdir()
    instances = Instances(make, address, hosts, folder)
    try:
        yield instances
    finally:
        instances.close()


@pytest.fixture
def leased(store, queue, address, tmp_path):
    yield from gather(by_lease, address, "", tmp_path / "instances")


@pytest.fixture
def judged(store, queue, address, zookeeper, tmp_path):
    yield from gather(by_zookeeper, address, zookeeper.hosts, tmp_path / "instances")


# --- by the catalog's lease -----------------------------------------------------------------------


def test_by_the_lease_one_sweeps_and_when_it_is_killed_another(store, queue, leased):
    one_sweeps_and_then_another(store, queue, leased, then=lambda: end_lease(store))


def test_by_the_lease_no_two_lead_at_once(store, queue, leased):
    """Each leader begins after the last one has ended, or was killed."""
    for left in (2, 1):
        (leader,) = leased.wait_for(1)
        leased.kill(leader)
        assert leased.leading() == []
        end_lease(store)
        assert len(leased.children) == left
    leased.wait_for(1)

    turns = [journal.read("leads") for journal in leased.journals.values()]
    assert [len(turn) for turn in turns] == [1, 1, 1]


# --- by ZooKeeper ---------------------------------------------------------------------------------


@pytest.mark.nightly
@ONLY_SQLITE
def test_by_zookeeper_one_sweeps_and_when_it_is_killed_another(store, queue, judged):
    one_sweeps_and_then_another(store, queue, judged, then=lambda: None)


@pytest.mark.nightly
@ONLY_SQLITE
def test_without_zookeeper_nobody_sweeps_until_it_is_back(store, queue, judged, zookeeper):
    judged.wait_for(1)

    zookeeper.stop()
    judged.wait_for(0)
    before = sum(len(journal.read("ran")) for journal in judged.journals.values())
    stuck(store, queue, 5)
    time.sleep(1.0)
    assert swept(queue) == 0
    assert sum(len(journal.read("ran")) for journal in judged.journals.values()) == before

    zookeeper.start()
    judged.wait_for(1)
    until(lambda: swept(queue) == 5)


@pytest.mark.nightly
@ONLY_SQLITE
def test_the_nodes_are_those_of_ignismq(store, zookeeper):
    from kazoo.client import KazooClient

    leaders = [by_zookeeper(store, name, zookeeper.hosts) for name in ("one", "two")]
    root = "/ignis-ignis-workers/ignis"
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        leaders[0].start()
        until(leaders[0].leads)
        leaders[1].start()
        until(lambda: client.exists(f"{root}/communicator/two") is not None)

        assert sorted(client.get_children(root)) == [
            "communicator",
            "loadbalancer-leader",
            "members",
        ]
        assert sorted(client.get_children(f"{root}/members")) == ["one", "two"]
        assert client.exists(f"{root}/members/one").ephemeralOwner
        told = {
            name: json.loads(client.get(f"{root}/communicator/{name}")[0])
            for name in ("one", "two")
        }
        assert told == {
            "one": {"balancerId": "one", "partitions": ["orders"]},
            "two": {"balancerId": "one", "partitions": ["parcels"]},
        }
        assert not leaders[1].leads()

        leaders[0].stop()
        until(leaders[1].leads)
        until(lambda: client.exists(f"{root}/communicator/one") is None)
        assert not leaders[0].leads()
    finally:
        for leader in leaders:
            leader.stop()
        client.stop()
        client.close()


@pytest.mark.nightly
@ONLY_SQLITE
def test_an_instance_that_finds_no_thread_stands_again_when_it_is_started(
    store, zookeeper, monkeypatch
):
    from kazoo.client import KazooClient

    leader = by_zookeeper(store, "one", zookeeper.hosts)

    def refuse(_):
        raise RuntimeError("can't start new thread")

    for start in ((Loop, "start"), (KazooClient, "start_async")):
        with monkeypatch.context() as crowded:
            crowded.setattr(*start, refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                leader.start()
    try:
        leader.start()
        until(leader.leads)
    finally:
        leader.stop()


# --- either way -----------------------------------------------------------------------------------


@ONLY_SQLITE
def test_the_catalogs_lease_is_what_there_is_without_zookeeper(store):
    assert isinstance(candidate(store.catalog), LeaseLeader)
    judged = candidate(store.catalog, zookeeper="somewhere:2181,else:2181/there")
    assert isinstance(judged, ZooKeeperLeader)
    assert not judged.leads()
    with store.catalog.read() as connection, pytest.raises(NotLeading):
        judged.guard(connection)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"zookeeper": "nowhere"}, "zookeeper='nowhere': use host:port"),
        ({"zookeeper": "host:2181", "client_id": "a/b"}, "clientId='a/b'"),
    ],
)
@ONLY_SQLITE
def test_a_strange_address_is_refused(store, wrong, told):
    with pytest.raises(BadOption, match=told):
        candidate(store.catalog, **wrong)
