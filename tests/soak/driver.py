"""
The Spark driver of a soak: starts its query again whenever the query fails.

    python -m tests.soak.driver '{"store": …}' HISTORIES LIFE

So a short outage costs a query, and not the seconds in which a new JVM starts.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.crash.spark.driver import Job, copy, session
from tests.soak.history import History

#: Seconds between the end of a query and its next start.
_REST = 0.5
#: An error that only another checkpoint mends, which is the matter of the supervisor.
STALE = "StaleCheckpoint"


def main(text: str, histories: str, life: str) -> None:
    """Copy until killed, or until the checkpoint is refused."""
    job = Job.from_json(text)
    history = History(Path(histories), life)
    spark = session(job.master, job.java_options)
    while True:
        error = _copy(spark, job)
        kinds = re.findall(r"queue_core\.errors\.(\w+)", error)
        kind = kinds[-1] if kinds else "query ended"
        history.write("error", kind=kind, verb="spark", text=error[-1500:])
        if STALE in kinds:
            sys.exit(error)
        time.sleep(_REST)


def _copy(spark: SparkSession, job: Job) -> str:
    """Run the query until it ends; return why."""
    try:
        copy(spark, job).awaitTermination()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
