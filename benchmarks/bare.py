"""The ceiling: a Spark source and sink that only read and write Arrow files.

They have no catalog, no checksums and no exactly-once, and sync files only with the option `sync`:
the best that Spark's Python data sources can do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from queue_core.support.durable import sync


@dataclass
class FilePartition(InputPartition):
    """One Arrow file."""

    path: str


class BareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads all files of a folder in one micro-batch."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, Any]:
        """Before the only batch."""
        return {"batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """There is nothing to prepare."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """After the only batch."""
        return {"batch": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FilePartition]:
        """One for each file."""
        return [FilePartition(str(path)) for path in sorted(Path(self._folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a file as they are."""
        assert isinstance(partition, FilePartition)
        with pa.memory_map(partition.path) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


class _Writer:
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folder = options["path"]
        self._syncs = options.get("sync") == "true"
        # Any column may be null, as in Spark's own formats of files.
        fields = to_arrow_schema(schema, timezone="UTC")
        self._schema = pa.schema([field.with_nullable(True) for field in fields])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a partition into one file, in batches of the size that reading likes."""
        path = Path(self._folder) / f"{uuid.uuid4().hex}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            for batch in iterator:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        if self._syncs:
            sync(path)
            sync(path.parent)
        return WriterCommitMessage()


class BareWriter(_Writer, DataSourceArrowWriter):
    """One Arrow file a task."""

    def commit(self, messages: list[Any]) -> None:
        """Whatever is there is there."""

    def abort(self, messages: list[Any]) -> None:
        """Whatever is there is there."""


class BareStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """One Arrow file a task and micro-batch."""

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Whatever is there is there."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Whatever is there is there."""


class BareSource(DataSource):
    """``format("bare")``: the Arrow files of a folder."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bare"

    def schema(self) -> StructType:
        """That of the first file."""
        first = next(Path(self.options["path"]).glob("*.arrow"))
        with pa.memory_map(str(first)) as source:
            return from_arrow_schema(pa.ipc.open_file(source).schema)

    def streamReader(self, schema: StructType) -> BareStreamReader:
        """All files as one micro-batch."""
        return BareStreamReader(self.options["path"])

    def writer(self, schema: StructType, overwrite: bool) -> BareWriter:
        """One file a task."""
        return BareWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> BareStreamWriter:
        """One file a task."""
        return BareStreamWriter(self.options, schema)
