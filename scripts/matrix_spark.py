"""What each Python of `make matrix` does with PySpark: queue to queue, and a handler."""

import platform
import sys

import pyspark
from pyspark.sql import SparkSession

from pyspark_ignis import consume, tuned
from queue_core import Store

path, checkpoints = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = tuned(builder.config("spark.driver.host", "127.0.0.1"), brief=True).getOrCreate()
rows = spark.range(100).selectExpr("id AS number")
rows.write.format("ignis").mode("append").option("queue", "in").save(path)
moved = spark.readStream.format("ignis").option("queue", "in").load(path).where("number < 50")
writer = moved.writeStream.format("ignis").option("queue", "out")
writer = writer.option("checkpointLocation", f"{checkpoints}/move").trigger(availableNow=True)
writer.start(path).awaitTermination()
consume(
    spark,
    "out",
    lambda message: message["number"] % 2 == 0,
    path=path,
    checkpoint=f"{checkpoints}/judge",
    trigger={"availableNow": True},
).awaitTermination()
spark.stop()
with Store.open(path, create=False) as store:
    out = store.queue("out")
    assert out.browse().num_rows == 0
    sidelined = sorted(out.browse(magazine="sideline").column("number").to_pylist())
    assert sidelined == list(range(1, 50, 2)), sidelined
    assert store.queue("in").browse().num_rows == 0
print(f"Python {platform.python_version()}, PySpark {pyspark.__version__}: 50 messages handled")
