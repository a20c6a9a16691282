# ruff: noqa: E501 the lines of the page
"""Write docs/troubleshooting.md: the likeliest mistakes, with what one reads after each.

`make docs` runs it. Without a Spark session, it keeps the part of the page that needs one;
``python -m scripts.troubleshooting_page`` starts a session, and writes the whole page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.mistakes import SECTIONS, SPARK, Mistake, Section, said, said_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent / "docs" / "troubleshooting.md"

_HEAD = """# Troubleshooting

These are the likeliest mistakes, each with the message that you get. `store` is a store in `/data/shop`, and `orders` a queue with the
columns `id`, `customer` and `amount`.

Spark prints an error of ignis within its own traces. Look for the last line that begins with the name of an error, such as
`BadOption:`. In Python, `query.exception()` has it. The [API](api/errors.md#errors) lists all errors, and what to do about each
kind. With the setting `spark.sql.execution.pyspark.udf.hideTraceback.enabled=true` of a session, Spark shows the error first when it asks
for a schema or a writer, and hides the traces of your own functions too.

Not every problem raises an error:

| what you see | why, and what to do |
|---|---|
| a query fires nothing, and no error | `ignis why QUEUE` says whether the queue is paused or empty, a breaker is open, a limit is used up, or a group or a time holds its messages back, and `ignis consumers` who holds its messages. The selector may match no message, or an exclusive consumer may have the queue. |
| failed messages do not come back | The messages are dead, as `ignis retries` shows, or no process runs [side tasks](guide.md#run-the-side-tasks). |
| messages stay in flight after a crash | They belong to a consumer that did not come back, and return when it starts again. After 20 to 35 minutes, a sweep sidelines messages of pools, of plain Python, and of queries with handlers. Messages of other queries wait for a restart: if the query will not restart, run `ignis sweep QUEUE --consumer NAME`. |
| messages stay in flight after a query failed before its first batch, for example because of a wrong option of its sink | After a minute, `ignis recover` or the next sweep puts them back. |
| `DATA_SOURCE_NOT_FOUND` | Spark starts a different Python, in which ignis is not installed. Build the session with `tuned(SparkSession.builder)`, activate your environment, or set `PYSPARK_PYTHON` to the Python in which ignis is installed, before the session starts. |
| `Python worker failed to connect back` | Spark starts a process of Python for each query that reads a queue, and waits 10 s for it. On a very busy machine, that may not be enough: start the query again with the same checkpoint, which loses nothing, and start fewer queries at once. If it comes each time, `PYSPARK_PYTHON` names a Python that is slow to start or ends at once, or a VPN or a firewall keeps processes of the machine apart: set `SPARK_LOCAL_IP=127.0.0.1`. |
| `Failed to cancel job group` when a query stops | Spark writes this warning if the query has no job at that moment. It is harmless. |
| `StackOverflowError` in a "stream execution thread" when a query stops | Spark searches the whole message of the error with which a function of `foreachBatch` ends, and needs a large stack for that. The query ends all the same. To end it without the error, build the session with `spark.driver.extraJavaOptions=-Xss32m`. |
| `ignis does not support Update mode` | Spark can only append to a queue. Use `outputMode("append")`, with a watermark if the query aggregates, or write in `foreachBatch`. |
| a handler saw a message twice | The process died before the outcome was committed. In Spark, the whole batch is repeated. Use a pool with `transactional=True` if the handler writes to the catalog's database. |
"""
_SPARK_HEAD = f"## {SPARK.title}"


def page(spark: SparkSession | None = None) -> str:
    """Return the whole page; without a session, the part about Spark is the present one."""
    parts = [_HEAD, *(section(each, said) for each in SECTIONS)]
    if spark is None:
        parts.append(_SPARK_HEAD + PAGE.read_text().partition(_SPARK_HEAD)[2])
    else:
        parts.append(section(SPARK, lambda mistake: said_by_spark(mistake, spark)))
    return "\n".join(parts)


def section(mistakes: Section, tell: Callable[[Mistake], str]) -> str:
    """Return a section, with what the user reads after each mistake."""
    parts = [f"## {mistakes.title}", ""]
    for mistake in mistakes.mistakes:
        language = "bash" if mistake.code.startswith("ignis ") else "py"
        parts += [f"### {mistake.title}", "", f"```{language}", mistake.code, "```", ""]
        parts += ["```text", tell(mistake), "```", ""]
        if mistake.hint:
            parts += [mistake.hint, ""]
    return "\n".join(parts)


def main() -> None:
    """Write the whole page, with a session of Spark."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    PAGE.write_text(page(spark))


if __name__ == "__main__":
    main()
