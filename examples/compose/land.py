"""A Spark job: publish the documents of JSON files in a folder, each row once.

python land.py FOLDER [--once]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_ignis import tuned


def main(folder: str, *, once: bool = False) -> None:
    """
    Run the stream.

    Args:
        folder: The folder with `landing/`, to which files are moved when they are whole, and with
            the checkpoint.
        once: Publish what is there and end, instead of waiting for more.
    """
    landing = Path(folder, "landing")
    if not landing.exists():  # the first start brings some documents along
        landing.mkdir(parents=True)
        rows = [{"document": number, "text": "word " * (number % 9)} for number in range(1000)]
        landing.joinpath("first.json").write_text("\n".join(map(json.dumps, rows)))
    spark = tuned(SparkSession.builder.master("local[2]").appName("land")).getOrCreate()
    query = (
        spark.readStream.schema("document LONG, text STRING")
        .json(str(landing))
        .writeStream.format("ignis")
        .option("queue", "documents")
        .option("checkpointLocation", f"{folder}/checkpoints/land")
        .trigger(**({"availableNow": True} if once else {"processingTime": "1 second"}))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], once="--once" in sys.argv)
