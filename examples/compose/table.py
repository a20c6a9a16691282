"""A Spark job: write the rows of the workers to a Parquet table, each once.

python table.py FOLDER [--once]
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pyspark_ignis import tuned


def main(folder: str, *, once: bool = False) -> None:
    """
    Run the stream.

    Args:
        folder: The folder of `summaries/`, which is the table, and of the checkpoint.
        once: Write what is there and end, instead of waiting for more.
    """
    spark = tuned(SparkSession.builder.master("local[2]").appName("table")).getOrCreate()
    query = (
        spark.readStream.format("ignis")
        .option("queue", "summaries")
        .load()
        .select("document", "words")
        .writeStream.format("parquet")
        .option("path", f"{folder}/summaries")
        .option("checkpointLocation", f"{folder}/checkpoints/table")
        .trigger(**({"availableNow": True} if once else {"processingTime": "1 second"}))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], once="--once" in sys.argv)
