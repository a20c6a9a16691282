"""The command that handles messages: a pool of workers without a script."""

from __future__ import annotations

import logging
import sys
from typing import Any

import typer

from ignis_cli.app import Limit, Positive, command, duration
from ignis_cli.display import answer, complain
from ignis_cli.invocation import REFUSED, current
from queue_core import ConsumerPool, IgnisError
from queue_core.errors import BadOption
from queue_core.pool.held_bytes import MAX_BYTES
from queue_core.support.import_paths import imported, is_path

_CHANGE = "Change"


@command(_CHANGE)
def work(
    handler: str,
    *,
    queue: list[str],
    workers: Limit = None,
    batch: Positive = 100,
    max_bytes: Positive = MAX_BYTES,
    name: str | None = None,
    drain: bool = False,
    stop_after: str = "30s",
) -> None:
    """
    Handle messages in threads, until SIGTERM or Ctrl-C.

    At the end, the threads finish their current batches, and messages that no handler saw are put
    back. The log goes to standard error.

    Args:
        handler (MODULE:HANDLER): Import path of the handler: a function of one message, a function
            marked by batch_handler, or an object with a method handle. The current folder is on the
            path.
        queue (QUEUE): Queue to work on. Repeatable.
        workers: Number of threads. By default, the queues' concurrency.
        batch: Messages that a thread takes at once.
        max_bytes: Bytes of messages, fired and not settled, that the threads hold at once.
        name: Name of the consumer. By default, one of the process.
        drain: End when no message is left, instead of waiting.
        stop_after (TIME): Time that the handlers have at the end; then their messages are put back.
    """
    seconds = duration("stop-after", stop_after)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    with current.get().store() as store:
        pool = ConsumerPool(
            store,
            queue,
            _imported(handler),
            concurrency=workers,
            batch=batch,
            max_bytes=max_bytes,
            name=name,
        )
        try:
            if drain:
                with pool:
                    pool.drain()
            else:
                complain(f"working on {', '.join(queue)}; Ctrl-C ends")
                pool.run(seconds)
        except IgnisError as error:
            if error is not pool.error:
                raise
            # The log, which goes to the same place, has it already.
            raise typer.Exit(REFUSED) from error
        counts = pool.counts
    text = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))
    answer(text or "no message was handled", **counts)


def _imported(path: str) -> Any:
    """Return the object of an import path; raises `BadOption`."""
    if not is_path(path):
        raise BadOption(f"{path}: write MODULE:HANDLER, such as shop.orders:charge")
    sys.path.insert(0, "")
    return imported(path, path)
