"""A real ZooKeeper server, from the jars that PySpark brings along."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path

from benchmarks.ports import lasting_port
from tests.waiting import until

_CONFIGURATION = """
tickTime=200
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
minSessionTimeout=400
maxSessionTimeout=60000
"""


class ZooKeeper:
    """A server that can be stopped and started again, with its data and port."""

    def __init__(self, folder: Path) -> None:
        port = lasting_port()
        self.hosts = f"127.0.0.1:{port}"
        self._address = ("127.0.0.1", port)
        self._folder = folder
        self._folder.mkdir(parents=True)
        self._file = folder / "zoo.cfg"
        self._file.write_text(_CONFIGURATION.format(folder=folder / "data", port=port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        jars = Path(spec.origin).parent / "jars" / "*"
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars, main, self._file],
                stdout=log,
                stderr=log,
            )
        until(self._answers, "ZooKeeper does not answer")

    def stop(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            with socket.create_connection(self._address, timeout=1):
                return True
        except OSError:
            return False


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    assert java, "no Java: set JAVA_HOME (scripts/java_home.py tells it)"
    return str(java)
