"""A real Kafka broker, from the jars of Maven Central, which Ivy from PySpark's jars fetches."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.ports import free_port

VERSION = "4.2.2"
#: Where the jars stay between runs; Ivy keeps its downloads in the same place.
JARS = Path.home() / ".cache/ignis-tests" / f"kafka-{VERSION}"
PATIENCE = 120.0

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Broker:
    """A broker with one node, which is its own controller."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._settings = folder / "server.properties"
        self._settings.write_text(
            _SETTINGS.format(port=self._port, controller=controller, folder=folder)
        )

    def __enter__(self) -> Broker:
        _fetch()
        settings = str(self._settings)
        self._run(
            "kafka.tools.StorageTool", "format", "-t", "ignis-tests-cluster-id", "-c", settings
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", settings), stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + PATIENCE
        while not _answers(self._port):
            assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
            assert time.monotonic() < end, "the broker does not answer"
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def count(self, topic: str) -> int:
        """Return the number of records that were written to a topic, from its files."""
        found = 0
        for log in self._folder.glob(f"data/{topic}-*/*.log"):
            said = self._run("kafka.tools.DumpLogSegments", "--files", str(log), "--print-data-log")
            found += len(re.findall(r"^\| offset: ", said, re.MULTILINE))
        return found

    def _run(self, main: str, *more: str) -> str:
        done = subprocess.run(_java(main, *more), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _java(main: str, *more: str) -> list[str]:
    java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [*java, "-cp", f"{JARS}/*", main, *more]


def _fetch() -> None:
    """Fetch the broker and what it needs, unless an earlier run did."""
    if JARS.exists():
        return
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    getting = JARS.with_name(JARS.name + ".getting")
    ivy = ["java", "-cp", f"{Path(spec.origin).parent}/jars/*", "org.apache.ivy.Main"]
    what = ["-dependency", "org.apache.kafka", "kafka_2.13", VERSION, "-confs", "default"]
    where = [
        "-types",
        "jar",
        "bundle",
        "-retrieve",
        f"{getting}/[artifact]-[revision].[ext]",
        "-warn",
    ]
    subprocess.run([*ivy, *what, *where], check=True, stdout=subprocess.DEVNULL)
    getting.rename(JARS)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
