"""
The soak of `make soak`: servers of its own, and every fault.

    python -m tests.soak --minutes 60 --catalog postgresql --seed 7

With SQLite the segments are in a folder, with PostgreSQL in a bucket behind a bad proxy. A cluster
is a primary with two standbys, to which the primary replicates before a commit returns
(``synchronous``) or after (``asynchronous``), and a folder. A network is four machines with cables
that are cut, for which it must be root. Ends with 1 if a promise was broken;
then everything is kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from sqlalchemy import make_url

from queue_core import IgnisError, Store
from queue_core.values.address import Address
from tests import servers
from tests.books import audit
from tests.hosts import Network
from tests.soak import report
from tests.soak.cast import ROLES
from tests.soak.cluster import WAYS, TakeOver, cluster
from tests.soak.growth import Growth
from tests.soak.nemesis import Fault
from tests.soak.network import KINDS, Partition
from tests.soak.postgres import SETTINGS, Cut, Failover, Freeze, Restart, Standby
from tests.soak.proxy import proxy
from tests.soak.roles import judge_browsers, make_more_queues, more_parts
from tests.soak.soak import PAUSE_SECONDS, Result, Soak
from tests.soak.spark import Copier, spark_faults
from tests.soak.sqlite import Clock, Restore, clocks
from tests.soak.storage import NoRoom, bad_buckets
from tests.soak.workload import READERS, Scene

#: Seconds for which vacuum leaves files alone: longer than the age of a copy that is put back.
GRACE = 90.0
#: The invariants of logs and of their readers.
OF_LOGS = ("I32", "I33", "I34")
#: Seconds in which the processes may empty the queues, of which Spark may take many.
EMPTY_SECONDS = 600.0


def main() -> int:
    """Run the soak of the command line; return 0 if every promise was kept."""
    # So that no process outlives a soak that is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--catalog", choices=CATALOGS, default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="between two faults")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--report", type=Path, help="the file for the result, as JSON")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(f"{asked.catalog}, {asked.minutes:g} minutes, seed {asked.seed}")
    folder = Path(tempfile.mkdtemp(prefix="ignis-soak-"))
    console.print(f"histories: {folder}")
    result = soaked(
        asked.catalog, folder, asked.seed, asked.minutes * 60, asked.pause, spark=not asked.no_spark
    )
    report.show(result, console)
    if asked.report:
        report.save(result, asked.report)
    return _keep_or_remove(result, folder, console)


def soaked(
    catalog: str,
    folder: Path,
    seed: int,
    seconds: float,
    pause: float = PAUSE_SECONDS,
    *,
    spark: bool = False,
    only: type[Fault] = Fault,
) -> Result:
    """Run a soak with all of its faults, or with some; judge its books too."""
    # The servers have a user of their own.
    folder.chmod(0o755)
    with CATALOGS[catalog](folder, seed, spark=spark) as (soak, faults):
        chosen = [fault for fault in faults if isinstance(fault, only)]
        result = soak.run(seconds, chosen, pause)
        result.broken += books(soak.scene)
    return result


@contextmanager
def on_sqlite(folder: Path, seed: int, *, spark: bool) -> Iterator[tuple[Soak, list[Fault]]]:
    """A soak of an embedded store, and its faults."""
    address = Address.of(folder / "store")
    with _soak(address, folder, seed, spark) as (soak, faults, copier):
        query = (copier.kill, copier.has_got_on) if copier else ()
        restore = Restore(address, soak.cast, soak.history, soak.look, *query)
        wrong = [fault for fault in faults if isinstance(fault, Clock)]
        for clock in wrong:
            clock.after = restore.forget_copy
        soak.meanwhile.append(lambda: any(clock.days for clock in wrong) or restore.keep_copy())
        yield soak, [*faults, restore, NoRoom(soak.cast, soak.chance)]


@contextmanager
def on_postgresql(folder: Path, seed: int, *, spark: bool) -> Iterator[tuple[Soak, list[Fault]]]:
    """A soak of a store in a server and a bucket, and its faults."""
    with (
        servers.postgres(SETTINGS) as server,
        server.database() as url,
        servers.object_store() as bucket,
        proxy(bucket.endpoint, seed) as (bad, endpoint),
    ):
        address = Address(url, bucket.bucket().replace(bucket.endpoint, endpoint))
        standby = Standby(server)
        with _soak(address, folder, seed, spark) as (soak, faults, _):
            for clock in (fault for fault in faults if isinstance(fault, Clock)):
                clock.after = standby.forget
            freeze = Freeze(server)
            faults += [
                freeze,
                Cut(url, freeze, soak.chance),
                Restart(server, standby, soak.chance),
                Failover(server, standby, address, soak.cast, soak.history),
                *bad_buckets(bad, soak.chance),
            ]
            yield soak, faults


@contextmanager
def on_cluster(
    folder: Path, seed: int, *, spark: bool, synchronous: bool
) -> Iterator[tuple[Soak, list[Fault]]]:
    """A soak of a store in a replicated server and a folder, and its faults."""
    with cluster(synchronous=synchronous) as running:
        address = Address(running.url, str(folder / "store"))
        with _soak(address, folder, seed, spark) as (soak, faults, _):
            faults += [
                TakeOver(
                    how=how,
                    shared=spark,
                    cluster=running,
                    address=address,
                    cast=soak.cast,
                    history=soak.history,
                    chance=soak.chance,
                )
                for how in WAYS
            ]
            yield soak, faults


@contextmanager
def on_network(folder: Path, seed: int, *, spark: bool) -> Iterator[tuple[Soak, list[Fault]]]:
    """A soak on machines of their own: loaders, consumers, the database and the bucket."""
    with Network(["loaders", "consumers", "database", "bucket"]) as network, ExitStack() as stack:
        server = stack.enter_context(servers.postgres(SETTINGS))
        url = make_url(stack.enter_context(server.database()))
        server.stop()
        hosts = network.hosts
        with hosts["database"].inside():
            server.start_on(hosts["database"].address)
        with hosts["bucket"].inside():
            bucket = stack.enter_context(servers.object_store(hosts["bucket"].address))
        there = url.set(host=hosts["database"].address, port=5432, query={})
        address = Address(there.render_as_string(hide_password=False), bucket.bucket())
        roles = [role.__name__ for role in (*ROLES, *(part.role for part in more_parts()))]
        spaces = dict.fromkeys(roles, hosts["consumers"].space)
        spaces |= dict.fromkeys(("produce", "hurry"), hosts["loaders"].space)
        with _soak(address, folder, seed, spark, spaces) as (soak, faults, copier):
            if copier is not None:
                copier.place = hosts["consumers"].inside
            partitions = [
                Partition(kind=kind, shared=spark, network=network, chance=soak.chance)
                for kind in KINDS
            ]
            yield soak, [*faults, *partitions]


#: How to start each kind of soak.
CATALOGS = {
    "sqlite": on_sqlite,
    "postgresql": on_postgresql,
    "synchronous": partial(on_cluster, synchronous=True),
    "asynchronous": partial(on_cluster, synchronous=False),
    "network": on_network,
}


@contextmanager
def _soak(
    address: Address,
    folder: Path,
    seed: int,
    spark: bool,
    spaces: Mapping[str, str] | None = None,
) -> Iterator[tuple[Soak, list[Fault], Copier | None]]:
    history = folder / "history"
    history.mkdir()
    more = {"more_fired": (*READERS, *(["out"] if spark else []))}
    more |= {"more_loaded": ("in",)} if spark else {}
    scene = Scene(address, history, grace=GRACE, spaces=spaces or {}, **more)
    soak = Soak(scene, seed, {"in": "out"} if spark else {}, EMPTY_SECONDS)
    make_more_queues(scene)
    soak.cast.parts += more_parts()
    faults = [*soak.faults(), *clocks(address, soak.chance), Growth(address)]
    if not spark:
        yield soak, faults, None
        return
    where = {"catalog": address.catalog, "storage": address.storage}
    copier = Copier(where, folder, soak.history)
    soak.meanwhile.append(copier.check)
    try:
        yield soak, faults + spark_faults(copier, soak.chance), copier
    finally:
        copier.kill()


def books(scene: Scene) -> list[str]:
    """The state of the store's books and of its browsers at the end."""
    with Store(scene.address, create=False) as store:
        try:
            unseen = judge_browsers(store, scene)
            audit(store)
            # Times that were written while a clock jumped differ, so only logs are asked for.
            found = [row for row in store.admin.fsck().to_pylist() if row["invariant"] in OF_LOGS]
            unseen += [f"fsck: {row}" for row in found]
            store.admin.vacuum(grace=0)
        except (AssertionError, IgnisError) as error:
            return [f"the books are wrong: {error}"]
    return unseen


def _keep_or_remove(result: Result, folder: Path, console: Console) -> int:
    if result.right:
        shutil.rmtree(folder)
        return 0
    console.print(f"everything is kept in {folder}", style="bold red")
    return 1


if __name__ == "__main__":
    sys.exit(main())
