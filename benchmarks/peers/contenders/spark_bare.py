"""Arrow files without a queue: the ceiling of Spark's Python data sources."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.bare import BareSource
from benchmarks.peers.servers import Servers
from benchmarks.peers.spark import SparkPeer, session


class Bare(SparkPeer):
    """One file a task."""

    name = "bare Arrow files"
    conditions = "through Spark: files without sync, checksums, catalog or exactly-once"
    syncs = False

    def start(self, servers: Servers) -> None:
        """A folder, and the source."""
        session().dataSource.register(BareSource)
        self._folder = servers.data("bare-synced" if self.syncs else "bare")

    def create(self, place: str) -> None:
        """A folder."""
        (self._folder / place).mkdir()

    def writer(self, writing: Any, place: str) -> Any:
        """Files in the folder."""
        options = {"path": self._path(place), "sync": str(self.syncs).lower()}
        return writing.format("bare").options(**options)

    def stream(self, place: str, like: DataFrame) -> DataFrame:
        """All files in one micro-batch."""
        return session().readStream.format("bare").load(self._path(place))

    def drop(self, place: str) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder / place)

    def again(self, place: str, rows: DataFrame) -> None:
        """Files stay."""

    def _path(self, place: str) -> str:
        return str(Path(self._folder) / place)


class BareSynced(Bare):
    """One file a task, which is as durable as a segment."""

    name = "bare Arrow files, synced"
    conditions = "through Spark: files that are synced, without checksums, catalog or exactly-once"
    syncs = True
