"""Join orders with products in Spark, and sum them up.

    python examples/revenue.py /tmp/revenue

One query reads orders from a queue and writes them, with the category of their product, to a second
queue: exactly once, even if the driver is killed. A report reads that queue and takes nothing.
"""

import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from queue_core import Store

ORDER = pa.schema([("product", pa.string()), ("cents", pa.int64())])


def main(path: str, spark: SparkSession) -> dict[str, int]:
    """Work off the orders that wait; return the cents of each category."""
    with Store.open(path) as store:
        orders = store.create_queue("orders", ORDER, exist_ok=True)
        orders.load([{"product": f"p{n % 4}", "cents": 100} for n in range(1000)])
    rows = [("p0", "food"), ("p1", "food"), ("p2", "toys"), ("p3", "toys")]
    products = spark.createDataFrame(rows, "product STRING, category STRING")

    sold = spark.readStream.format("ignis").option("queue", "orders").load(path)
    enriched = sold.join(products, "product").select("category", "cents")
    copying = (
        enriched.writeStream.format("ignis")
        .option("queue", "sales")
        .option("checkpointLocation", f"{path}/checkpoints/sales")
        .trigger(availableNow=True)
        .start(path)
    )
    copying.awaitTermination()

    sales = spark.read.format("ignis").option("queue", "sales").load(path)  # takes nothing
    return {row[0]: row[1] for row in sales.groupBy("category").sum("cents").collect()}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python examples/revenue.py FOLDER")
    print(main(sys.argv[1], SparkSession.builder.getOrCreate()))
