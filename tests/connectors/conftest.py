"""Fixtures of the tests of connectors: settings with which Spark starts fast, and a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.kafka import Broker

_DEFAULTS = """
spark.master                           local[2]
spark.ui.enabled                       false
spark.ui.showConsoleProgress           false
spark.driver.host                      127.0.0.1
spark.driver.memory                    1g
spark.log.level                        ERROR
spark.sql.shuffle.partitions           1
spark.databricks.delta.snapshotPartitions  1
"""


@pytest.fixture(autouse=True)
def _fast_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages say nothing of this: their queries start on small machines too."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(_DEFAULTS)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A Kafka broker of the test's own."""
    with Broker(tmp_path / "kafka") as started:
        yield started
