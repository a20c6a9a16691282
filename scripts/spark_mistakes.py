"""The likeliest mistakes in Spark, each with the sentence that one should look for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scripts.mistakes import SHOWN, Mistake, Section, shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = Section(
    "Spark",
    [
        Mistake("No queue is named", 'spark.readStream.format("ignis").load("/data/shop")'),
        Mistake(
            "An option is misspelt",
            'spark.readStream.format("ignis").option("queue", "orders").option(\n'
            '    "maxMessagePerTrigger", 1000\n'
            ').load("/data/shop")',
        ),
        Mistake(
            "A selector has a column that is not there",
            'spark.readStream.format("ignis").option("queue", "orders").option(\n'
            '    "selector", "amonut > 5"\n'
            ').load("/data/shop").writeStream.format("noop").start().awaitTermination()',
        ),
        Mistake(
            "The queue was never created",
            'spark.readStream.format("ignis").option("queue", "payments").load("/data/shop")',
        ),
        Mistake(
            "A batch is written without a mode",
            "rows = spark.range(3)\n"
            'rows.write.format("ignis").option("queue", "ids").save("/data/shop")',
            'Write `.mode("append")`.',
        ),
        Mistake(
            "The columns do not fit the queue",
            'rows = spark.range(3).selectExpr("\'c\' || id AS customer", "id AS total")\n'
            'to_orders = rows.write.format("ignis").mode("append").option("queue", "orders")\n'
            'to_orders.save("/data/shop")',
            "A stream fails in the same way at its first batch.",
        ),
        Mistake(
            "The handler takes other arguments",
            "def charge(id, amount): ...\n\n"
            'consume(spark, path="/data/shop", queue="orders", handler=charge, '
            'checkpoint="/data/c")',
        ),
    ],
)


def said_by_spark(mistake: Mistake, spark: SparkSession) -> str:
    """Make a mistake; return the sentence of ignis in what Spark says."""
    from pyspark_ignis import consume
    from queue_core import Store
    from scripts.mistakes import ROWS, SCHEMA

    with shop() as (folder, _):
        names: dict[str, Any] = {
            "ROWS": ROWS, "SCHEMA": SCHEMA, "Store": Store, "consume": consume, "spark": spark
        }  # fmt: skip
        code = mistake.code.replace(SHOWN, str(folder))
        try:
            exec(compile(code, "mistake", "exec"), names)
        except Exception as error:  # noqa: BLE001 Spark's and ours
            told = sentence(f"{type(error).__name__}: {error}")
            return told.replace(str(folder), SHOWN)
    raise AssertionError(f"this is no mistake: {code}")


def sentence(text: str) -> str:
    """Return the error of ignis in the text of an error of Spark."""
    found = re.search(r"(?:queue_core\.errors\.)?((?:No|Bad|Schema)[A-Z]\w+: .*)", text)
    return found[1].strip() if found else text.partition("\n")[0]
