"""Commands that change queues: create, load, set, deactivate, drop."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterable, Iterator

import pyarrow as pa

from ignis_cli import row_files
from ignis_cli.app import EachQueue, Format, MatchingQueue, Name, Positive, Yes, ask, command
from ignis_cli.counting import Interrupts, bar, between_transactions
from ignis_cli.ddl import columns as parse_columns
from ignis_cli.display import answer, complain
from ignis_cli.invocation import current
from queue_core import IgnisError, Queue
from queue_core.errors import BadOption, QueueExists
from queue_core.values.setting_texts import parse_settings
from queue_core.values.settings import DEFAULT_SHARDS
from queue_core.watching.present import read_queue
from queue_core.watching.wording import counted

_CHANGE = "Change"


@command(_CHANGE)
def create(
    queue: Name,
    columns: str | None = None,
    *,
    like: str | None = None,
    format: Format = None,
    shards: int = DEFAULT_SHARDS,
    key: str | None = None,
    set: list[str] | None = None,
    if_missing: bool = False,
) -> None:
    """
    Create a queue, and the store if it does not exist.

    Args:
        columns: Columns as in Spark SQL: 'id LONG NOT NULL, customer STRING'.
        like (FILE): Take the columns from this file instead.
        shards: Number of shards, 1 to 512. Order holds in each.
        key: Column whose hash picks the shard, so that messages of a key stay in order.
        set (NAME=VALUE): A setting, such as sweep_after=15m or attributes=amount,customer.
            Repeatable.
        if_missing: Accept that an equal queue exists.
    """
    if (columns is None) == (like is None):
        raise BadOption("give the columns, either as COLUMNS or as --like FILE")
    schema = parse_columns(columns) if columns else row_files.schema_of(str(like), format)
    settings = parse_settings(set or [])
    with current.get().store(create=True) as store, warnings.catch_warnings():
        # The warning of the core names a method; the line below names a command.
        warnings.simplefilter("ignore")
        exists = queue in store.queues()
        if exists and store.queue(queue).info.deactivated_at is None and not if_missing:
            raise QueueExists(
                f"queue {queue!r} exists already; with --if-missing, an equal queue is accepted"
            )
        made = store.create_queue(
            queue,
            schema,
            shards=shards,
            key=key,
            exist_ok=if_missing,
            **settings,
        )
    kept = made.info.settings.unlike(settings)
    if kept:
        given = [pair for pair in set or [] if pair.partition("=")[0] in kept]
        complain(
            f"queue {queue} already existed, and keeps its own {', '.join(kept)}; to change it: "
            f"ignis set {shlex.join([queue, *given])}"
        )
    done = "already existed" if exists else "was created"
    answer(
        f"queue {made.name} {done}, with {counted(made.info.shards, 'shard', 'shards')}",
        queue=made.name,
        created=not exists,
    )


@command(_CHANGE)
def load(
    queue: Queue,
    file: str = row_files.STDIN,
    *,
    format: Format = None,
    part: Positive = 1_000_000,
) -> None:
    """
    Load the rows of a file into a queue.

    Args:
        file: A file of JSON lines, CSV, Parquet or Arrow; '-' is standard input.
        part: Messages per transaction, 1 or more. Each part is loaded whole or not at all.
    """
    loaded = left_out = 0
    interrupts = Interrupts()
    with bar("load", None) as shown:
        try:
            for rows in _parts(row_files.batches(file, format, queue.schema), part):
                with between_transactions() as interrupts:
                    ids = queue.load(rows)
                    left_out += ids.null_count
                    loaded += len(ids) - ids.null_count
                shown(len(ids) - ids.null_count, 0)
                interrupts.check()
        except IgnisError:
            if loaded:
                complain(
                    f"{counted(loaded, 'message was', 'messages were')} loaded before this error:"
                )
            raise
        except KeyboardInterrupt:
            complain(f"load was interrupted after {interrupts.least}{counted(loaded)}")
            raise
    text = f"{counted(loaded)} loaded into {queue.name}"
    text += f", {left_out:,} left out" if left_out else ""
    answer(text, loaded=loaded, left_out=left_out)


@command(_CHANGE, "set")
def change(queue: MatchingQueue, settings: list[str]) -> None:
    """
    Change settings of a queue, even while it is in use.

    Args:
        settings (NAME=VALUE...): Settings, such as sweep_after=15m, attributes=amount,customer or
            policy=none.
    """
    values = parse_settings(settings)
    queue.admin.change_settings(**values)
    shown = {name: "none" if value is None else json.dumps(value) for name, value in values.items()}
    text = ", ".join(f"{name} is {value}" for name, value in shown.items())
    answer(f"{queue.name}: {text}", queue=queue.name, **values)


@command(_CHANGE)
def deactivate(queue: EachQueue, *, yes: Yes = False) -> None:
    """
    Deactivate a queue for good: it accepts and fires no more messages.

    Pools and queries of the queue end. The exit code is 1 if you answer no.
    """
    if not yes and queue.info.deactivated_at is None:
        seen = read_queue(queue.store.catalog, queue.name)
        ask(
            f"deactivate queue {queue.name} for good, with {counted(seen.waiting or 0)} waiting "
            f"and {counted(seen.consumers or 0, 'consumer', 'consumers')} connected"
        )
    queue.admin.deactivate()
    answer(f"queue {queue.name} is deactivated", deactivated=queue.name)


@command(_CHANGE)
def drop(queue: EachQueue, *, yes: Yes = False) -> None:
    """
    Remove a deactivated queue with all its messages, and free its name.

    Messages in the sideline and in flight go too. The exit code is 1 if you answer no.
    """
    name = queue.name
    if queue.info.deactivated_at is None:
        raise BadOption(f"queue {name!r} is in use; run ignis deactivate {name} first")
    if not yes:
        (row,) = queue.store.view("queues", name).to_pylist()
        left = sum(row[each] for each in ("waiting", "in_flight", "sidelined", "damaged"))
        ask(f"drop queue {name} with {counted(left)}")
    messages = queue.admin.drop()
    answer(f"queue {name} is dropped, with {counted(messages)}", dropped=name, messages=messages)


def _parts(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Combine and cut batches into tables of *rows* rows; the last one may be smaller."""
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]))
        while sum(each.num_rows for each in waiting) >= rows:
            found = pa.concat_tables(waiting, promote_options="permissive")
            yield found.slice(0, rows)
            waiting = [found.slice(rows)]
    if any(each.num_rows for each in waiting):
        yield pa.concat_tables(waiting, promote_options="permissive")
