"""What all tests share: a fresh store per catalog, one Spark session, a clean environment."""

import logging
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from queue_core import Store
from queue_core.catalog.identity import clock
from queue_core.handling.failure_log import FAILURES
from queue_core.pool import dispatcher
from queue_core.segments import stager
from queue_core.support import faults
from queue_core.values.address import Address
from tests import memory, servers, statements, unsynced
from tests.tree import ROOT
from tests.waiting import until
from tests.warm_python import warm_python
from tests.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = ROOT / "tests"
#: Folders about whole histories. The gate runs their cases on each catalog, as those of a file that
#: is marked `each_catalog`.
EACH_CATALOG = ("golden", "model", "property")
#: A folder about locks. The gate runs its cases on PostgreSQL: on SQLite, writers take turns.
ON_POSTGRESQL = "processes/interleavings"
#: Examples of a test by hypothesis that gives no number: in the gate, and in `make test-all`.
EXAMPLES = 30, 100
#: Spark runs for seconds here, too briefly for the optimizing compiler and parallel collectors.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


#: Groups of tests with Spark; each has its own session, and takes a processor and a gigabyte.
SPARK_GROUPS = 2


def spark_group(file: str) -> str:
    """Return the group of the tests in a file: those run in one process, and share its session."""
    return f"spark {zlib.crc32(file.encode()) % SPARK_GROUPS}"


def pytest_configure(config: pytest.Config) -> None:
    """Settings of ignis in the environment do not reach the tests or their processes."""
    _forget_ignis()
    memory.begin()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", BRIEF)
    os.environ.setdefault("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    statements.share()
    unsynced.begin()
    # No example fails for the time it took: machines are busy at times.
    slow = [hypothesis.HealthCheck.too_slow]
    examples = EXAMPLES["not nightly" not in config.option.markexpr]
    hypothesis.settings.register_profile(
        "ignis", deadline=None, suppress_health_check=slow, max_examples=examples
    )
    hypothesis.settings.load_profile("ignis")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Group the tests with Spark, and leave what repeats itself to `make test-all`."""
    file = item.path.relative_to(TESTS)
    if file.parts[0] == "spark" or "spark" in getattr(item, "fixturenames", ()):
        # They go to few workers, since each of them has a session.
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group(spark_group(item.path.name)))
        # Py4J leaves sockets to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
    if _repeats(item, file.parent.as_posix()):
        item.add_marker(pytest.mark.nightly)


def _repeats(item: pytest.Item, folder: str) -> bool:
    """Whether a case says on one database what another case says on the other, and need not."""
    # A test that names its catalog has no other case.
    if any(mark.args[:1] == ("catalog_url",) for mark in item.iter_markers("parametrize")):
        return False
    # Marks of the case alone: a test that is for PostgreSQL only has the mark itself.
    parameters = getattr(item, "callspec", None)
    if folder == ON_POSTGRESQL:
        return parameters is not None and parameters.params.get("catalog_url") == "sqlite"
    marks = {mark.name for mark in parameters.marks} if parameters else set()
    if "postgres" not in marks:
        return False
    mark = item.get_closest_marker("each_catalog")
    # `each_catalog(False)` marks a test of such a file that is not about the catalog.
    each_catalog = mark.args != (False,) if mark else folder.startswith(EACH_CATALOG)
    # In a bucket, one catalog is enough.
    return not each_catalog or "s3" in marks


@pytest.fixture(autouse=True, scope="session")
def _brief_slices() -> Iterator[None]:
    """Each pool ends a fifth of a second earlier: its dispatchers notice it sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatcher, "SLICE_SECONDS", 0.05)
        yield


@pytest.fixture(autouse=True)
def _clean_environment() -> Iterator[None]:
    """Settings, crash points and what is logged end with the test."""
    yield
    _forget_ignis()
    # Up to a minute after the first failures of a queue, their log says how many there were since.
    for catalog, queue in [*FAILURES._minutes]:
        FAILURES.flush(queue, catalog=catalog)
    logger = logging.getLogger("queue_core")
    level = logger.level
    logger.setLevel(logging.NOTSET)
    assert level == logging.NOTSET, "the test would keep later ones from seeing what is logged"


def _forget_ignis() -> None:
    for name in [name for name in os.environ if name.startswith("IGNIS_")]:
        del os.environ[name]
    faults.arm(None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Postgres]:
    """A PostgreSQL server of this worker."""
    with servers.postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty catalog, once per database."""
    if request.param == "sqlite":
        folder = tmp_path / "store"
        yield Address.of(folder).catalog
        return
    # A test that is given a store, or one of an old format, is not about its creation.
    ready = not {"store", "old"}.isdisjoint(request.fixturenames)
    with request.getfixturevalue("postgres").database(ready=ready) as url:
        yield url


@pytest.fixture(scope="session")
def object_store() -> Iterator[servers.ObjectStore]:
    """An S3 server of this worker."""
    with servers.object_store() as server:
        yield server


@pytest.fixture(params=["folder"])
def storage_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of an empty storage: a folder, or with `tests.storages.EVERYWHERE` a bucket too."""
    if request.param == "folder":
        return str(tmp_path / "store")
    return str(request.getfixturevalue("object_store").bucket())


@pytest.fixture
def address(catalog_url: str, storage_uri: str) -> Address:
    """Where the test's store is, to open it in other processes too."""
    return Address(catalog_url, storage_uri)


@pytest.fixture
def store(address: Address) -> Iterator[Store]:
    """A fresh store, once per catalog and storage."""
    with Store(address) as opened:
        if opened.catalog.file is None:
            # The database is a copy, and has the time at which the first one was made.
            opened.catalog.write(clock.accept)
        yield opened
        # A thread that a test has just stopped may be about to give its own back.
        pool = opened.catalog.engine.pool
        until(lambda: pool.checkedout() == 0, "a connection was not given back")


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads become files, however small they are."""
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A ZooKeeper server of the test's own."""
    server = ZooKeeper(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The Spark session of this worker: two cores, no UI, UTC."""
    from pyspark.sql import SparkSession

    from pyspark_ignis import tuned

    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    os.environ["TZ"] = "UTC"
    time.tzset()
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ignis tests")
        .config("spark.ui.enabled", False)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.execution.arrow.pyspark.enabled", True)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.checkpointLocation", str(folder / "checkpoints"))
    )
    with warm_python() as python:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
        session = tuned(builder).getOrCreate()
        # Sessions that tests start in processes of their own have a plain Python.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        session.sparkContext.setLogLevel("ERROR")
        yield session
        for query in session.streams.active:
            query.stop()
        session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A folder for the checkpoint of a test that restarts its query."""
    return str(tmp_path / "checkpoint")
