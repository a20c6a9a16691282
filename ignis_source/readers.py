"""Pick the streaming reader that the installed version of Spark can call."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from queue_core.errors import BadOption

if TYPE_CHECKING:
    from ignis_source.options import SourceOptions


def stream_reader(options: SourceOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of messages, of logs or of side tasks; raises `BadOption`."""
    if options.log is not None:
        options.log.check(streams=True)
    # Each import is only for some versions, and a query waits for it.
    if tells_start():
        from ignis_source.admission import AdmittedReader

        return AdmittedReader(options, schema)
    from ignis_source.older_spark import OlderReader

    if options.min_messages is not None:
        raise BadOption(
            "ignis source: minMessagesPerTrigger needs Spark 4.2 or later: remove it, or set a "
            "longer processingTime trigger"
        )
    return OlderReader(options, schema)


@cache
def tells_start() -> bool:
    """Return whether Spark says where a batch starts, as it does since 4.2."""
    return find_spec("pyspark.sql.streaming.datasource") is not None
