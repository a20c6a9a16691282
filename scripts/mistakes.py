"""The likeliest mistakes, each with the message that one gets, for docs/troubleshooting.md.

Each mistake is code that fails. It runs in a folder of its own, where ``store`` is a store in
``/data/shop`` with the queue ``orders``, of which 3 messages wait.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from typer.testing import CliRunner

from ignis_cli.app import app
from queue_core import ConsumerPool, QueueSettings, Retry, Settlement, Store, limit
from queue_core.errors import IgnisError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The folder that the page names instead of the one in which the code ran.
SHOWN = "/data"
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
ROWS = [{"id": n, "customer": f"c{n}", "amount": 10.0} for n in range(3)]


class Mistake(NamedTuple):
    """Code that fails, under the question that a user would have."""

    title: str
    code: str
    #: What the message does not say.
    hint: str = ""


class Section(NamedTuple):
    """Mistakes that are made in one place."""

    title: str
    mistakes: list[Mistake]


PLACES = Section(
    "Stores and queues",
    [
        Mistake("The path is wrong", 'Store.open("/data/shpo", create=False)'),
        Mistake("The path is one that only Spark understands", 'Store.open("dbfs:/shop")'),
        Mistake("The queue's name is misspelt", 'store.queue("order")'),
        Mistake("The queue exists already", 'store.create_queue("orders", SCHEMA)'),
        Mistake("The name is not allowed", 'store.create_queue("late orders", SCHEMA)'),
        Mistake("A setting is misspelt", 'orders.admin.change_settings(message_expire="1h")'),
        Mistake(
            "A duration cannot be read", 'orders.admin.change_settings(message_expiry="a week")'
        ),
        Mistake(
            "A retry policy that makes no attempt",
            "orders.admin.change_settings(retry=Retry(attempts=0))",
        ),
        Mistake(
            "A limit of a column that is not there",
            'orders.admin.change_settings(limits=limit("costumer", per_second=5))',
        ),
        Mistake(
            "The queue is deactivated",
            "orders.admin.deactivate()\norders.load(ROWS)",
        ),
        Mistake(
            "The server of the catalog cannot be reached",
            'Store.open(catalog="postgresql+psycopg://ignis@127.0.0.1:1/shop", '
            'storage="/data/files")',
        ),
    ],
)
MESSAGES = Section(
    "Messages",
    [
        Mistake("A column is misspelt", 'orders.load([{"id": 1, "amuont": 5.0}])'),
        Mistake("A value has another type", 'orders.load([{"id": "one"}])'),
        Mistake(
            "The queue is full",
            'small = store.create_queue("small", SCHEMA, max_size=2, overflow="fail")\n'
            "small.load(ROWS)",
        ),
        Mistake("A selector has a column that is not there", 'orders.fire(selector="amonut > 5")'),
        Mistake("A selector cannot be parsed", 'orders.fire(selector="customer = \'c1")'),
        Mistake("An order has no such column", 'orders.fire(order_by="priority")'),
        Mistake(
            "Ids of another queue are settled",
            'other = store.create_queue("other", SCHEMA, exist_ok=True)\n'
            "other.load(ROWS)\n"
            "orders.delete(other.fire())",
        ),
        Mistake(
            "An outcome is unknown",
            'ids = orders.fire(1).messages.select(["_message_id"])\n'
            'Settlement.of(ids.append_column("outcome", pa.array(["done"])))',
        ),
        Mistake(
            "The connection belongs to another database",
            "import sqlite3\n"
            'with sqlite3.connect("/data/other.db") as connection:\n'
            "    orders.within(connection).load(ROWS)",
        ),
    ],
)
HANDLERS = Section(
    "Handlers and pools",
    [
        Mistake(
            "The handler takes other arguments",
            'def charge(id, amount): ...\n\nConsumerPool(store, "orders", charge)',
        ),
        Mistake(
            "The handler returns nothing",
            "def charge(order):\n"
            '    order["amount"]\n\n'
            'with ConsumerPool(store, "orders", charge, concurrency=1) as pool:\n'
            "    pool.drain()",
            "Return `True` to delete the message. The first message is in the sideline.",
        ),
        Mistake(
            "The handler is the result of a call",
            'def charge(order):\n    return True\n\nConsumerPool(store, "orders", charge(ROWS[0]))',
        ),
        Mistake(
            "Two programs have one consumer name",
            'first = store.consumer("billing")\n'
            'store.consumer("billing")\n'
            "orders.fire(consumer=first)",
        ),
    ],
)
COMMANDS = Section(
    "Command line",
    [
        Mistake("No store is named", "ignis queues"),
        Mistake("The queue's name is misspelt", "ignis --path /data/shop peek order"),
        Mistake(
            "A setting has an impossible value",
            "ignis --path /data/shop set orders message_expiry=fortnight",
        ),
        Mistake(
            "The file has another format",
            "ignis --path /data/shop load orders orders.xlsx",
        ),
        Mistake("A command is misspelt", "ignis --path /data/shop shovle orders"),
    ],
)
SECTIONS = [PLACES, MESSAGES, HANDLERS, COMMANDS]
#: Each with the sentence that one should look for in what Spark says.
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


def said(mistake: Mistake) -> str:
    """Make a mistake; return what the user reads."""
    with shop() as (folder, store):
        if mistake.code.startswith("ignis "):
            told = _of_command(mistake.code.replace(SHOWN, str(folder)))
        else:
            told = _of_code(mistake.code.replace(SHOWN, str(folder)), store)
    told = told.replace(str(folder), SHOWN)
    # What differs from run to run.
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-23 05:00:00", told)


@contextlib.contextmanager
def shop() -> Iterator[tuple[Path, Store]]:
    """Make a folder with the store in which the mistakes are made."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder, "shop")) as store:
        store.create_queue("orders", SCHEMA).load(ROWS)
        yield Path(folder), store


def _of_code(code: str, store: Store) -> str:
    names: dict[str, Any] = {
        "ConsumerPool": ConsumerPool,
        "QueueSettings": QueueSettings,
        "ROWS": ROWS,
        "Retry": Retry,
        "SCHEMA": SCHEMA,
        "Settlement": Settlement,
        "Store": Store,
        "limit": limit,
        "orders": store.queue("orders"),
        "pa": pa,
        "store": store,
    }
    try:
        exec(compile(code, "mistake", "exec"), names)
    except IgnisError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"this is no mistake: {code}")


def _of_command(line: str) -> str:
    done = CliRunner(env={"IGNIS_PATH": None}).invoke(app, line.split()[1:], prog_name="ignis")
    assert done.exit_code, f"this is no mistake: {line}"
    return done.stderr.strip()


def said_by_spark(mistake: Mistake, spark: SparkSession) -> str:
    """Make a mistake; return the sentence of ignis in what Spark says."""
    from pyspark_ignis import consume

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
