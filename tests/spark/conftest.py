"""Fixtures of the tests of source and sink."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.rig import Rig


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[Rig]:
    """A store of the test's own, and queries over it, which end with the test."""
    made = Rig(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.store.close()
