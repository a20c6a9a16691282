"""Fixtures of the tests of source and sink."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_ignis import consume
from tests.spark.rig import AVAILABLE_NOW, Rig, finish


@pytest.fixture
def rig(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Rig]:
    """A store of the test's own, whole in the end, and queries over it, which end with the test."""
    made = Rig(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()
    if request.node.get_closest_marker("spoiled") is None:
        assert made.store.admin.fsck().to_pylist() == []
    made.store.close()


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path, checkpoint: str) -> Callable[..., StreamingQuery]:
    """Consume a queue of the test's store until it is empty; without a trigger, go on."""

    def start(handler: Any, **how: Any) -> StreamingQuery:
        usual = {"queue": "cases", "path": tmp_path / "store", "checkpoint": checkpoint}
        query = consume(spark, handler=handler, **usual | {"trigger": AVAILABLE_NOW} | how)
        if "trigger" not in how:
            finish(query)
        return query

    return start
