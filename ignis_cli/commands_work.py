"""The command that handles messages: a pool of workers without a script."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from ignis_cli import logs
from ignis_cli.app import Limit, Positive, command, duration
from ignis_cli.display import answer, complain
from ignis_cli.invocation import BROKEN, REFUSED, current
from ignis_cli.logs import LogFormat
from ignis_cli.supervising import (
    Supervisor,
    be_asked_once,
    end_with_supervisor,
    tell_supervisor,
)
from queue_core import Breaker, ConsumerPool, IgnisError
from queue_core.errors import BadOption, Unavailable
from queue_core.pool.held import MAX_BYTES
from queue_core.pool.signals import asked_to_end
from queue_core.support.collector import pass_over_all
from queue_core.support.import_paths import imported, is_path
from queue_core.values.names import check_consumer, of_process
from queue_core.watching.wording import counted

_CHANGE = "Change"
#: Arguments that the processes get in another form, or not at all.
_NOT_PASSED_ON = ("handler", "queue", "name", "processes", "drain")


@command(_CHANGE)
def work(
    handler: str,
    *,
    queue: list[str],
    workers: Limit = None,
    batch: Positive = 100,
    max_bytes: Positive = MAX_BYTES,
    name: str | None = None,
    output: str | None = None,
    selector: str | None = None,
    retry: str | None = None,
    breaker: str | None = None,
    processes: Annotated[int | None, typer.Option(min=1, max=1024)] = None,
    drain: bool = False,
    stop_after: str = "30s",
    log_format: LogFormat = LogFormat.text,
) -> None:
    """
    Handle messages in threads, until SIGTERM or Ctrl-C.

    At the end, the threads finish their current batches, and messages that no handler saw are put
    back. The log goes to standard error. With --processes, a process that dies is started again,
    under its name: so a message that kills its process is found, and set aside.

    Args:
        handler (MODULE:HANDLER): Import path of the handler: a function of one message, a function
            marked by batch_handler, or an object with a method handle. The current folder is on the
            path.
        queue (QUEUE): Queue to work on. Repeatable.
        workers: Number of threads. By default, the queues' concurrency.
        batch: Messages that a thread takes at once.
        max_bytes: Bytes of messages, fired and not settled, that the threads hold at once.
        name: Name of the consumer. By default, one of the process. With --processes, each adds its
            number.
        output (QUEUE): Queue for the rows that the handler returns. They are loaded in the
            transaction that deletes their message.
        selector (SELECTOR): SQL condition on the messages, such as 'amount > 10'.
        retry (POLICY): Policy of retries, such as 'Retry(attempts=3, backoff=constant(60))'. By
            default, the queues' setting.
        breaker (JSON): Circuit breaker, such as '{"of": 50, "pause": 2}'; '{}' for the defaults.
            The processes share it.
        processes: Number of processes, each with its own threads. By default, the command itself
            works, and nothing starts it again.
        drain: End when no message is left, instead of waiting. Failed ones that are not due for
            their next attempt are left.
        stop_after (TIME): Time that the handlers have at the end; then their messages are put back.
        log_format: Write the log as lines of text, or of json with fields such as queue.
    """
    # As they were given, to be passed on to processes.
    options = {**locals()}
    seconds = duration("stop-after", stop_after)
    logs.start(log_format)
    supervisor = end_with_supervisor()
    with _told_to(supervisor), current.get().store() as store:
        pool = ConsumerPool(
            store,
            queue,
            _imported(handler),
            concurrency=workers,
            batch=batch,
            max_bytes=max_bytes,
            name=name,
            output=output,
            selector=selector,
            retry=retry,
            breaker=None if breaker is None else Breaker.parse(breaker),
        )
        if supervisor is not None:
            be_asked_once()
        # What cannot work was refused above, once for all processes.
        counts = _run(pool, queue, seconds, drain=drain) if processes is None else {}
    died = 0
    if processes is not None:
        arguments = ["work", handler, *(f"--queue={each}" for each in queue)]
        arguments += ["--drain"] if drain else []
        for key, value in options.items():
            if value is not None and key not in _NOT_PASSED_ON:
                arguments.append(f"--{key.replace('_', '-')}={value}")
        names = [_name_of(name, number) for number in range(1, processes + 1)]
        where = counted(processes, "process", "processes")
        logs.announce(f"working on {', '.join(queue)} in {where}; Ctrl-C ends")
        children = Supervisor(current.get(), [[*arguments, f"--name={each}"] for each in names])
        children.run(seconds)
        counts, died = children.counts, children.died
    if supervisor is not None:
        tell_supervisor(supervisor, counts)
        return
    text = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))
    text = text or "no message was handled"
    if died:
        text += f"; not counted: what {counted(died, 'process', 'processes')} that died had done"
    answer(text, **counts)


@contextmanager
def _told_to(supervisor: int | None) -> Iterator[None]:
    """In a process of a supervisor, exit after an outage so that the supervisor starts another."""
    try:
        yield
    except Unavailable as error:
        if supervisor is None:
            raise
        complain(str(error), type(error).__name__)
        raise typer.Exit(BROKEN) from error


def _run(pool: ConsumerPool, queues: list[str], seconds: float, *, drain: bool) -> dict[str, int]:
    """Run a pool in this process; return what it has counted."""
    pass_over_all()
    try:
        if drain:
            with asked_to_end() as asked:
                pool.start()
                try:
                    threading.Thread(target=_drain, args=(pool, asked), daemon=True).start()
                    asked.wait()
                finally:
                    pool.stop(seconds)
        else:
            logs.announce(f"working on {', '.join(queues)}; Ctrl-C ends")
            pool.run(seconds)
    except IgnisError as error:
        if error is not pool.error:
            raise
        # The log, which goes to the same place, has it already.
        raise typer.Exit(REFUSED) from error
    return pool.counts


def _drain(pool: ConsumerPool, asked: threading.Event) -> None:
    """Ask to end when no message is left, or when the pool has failed."""
    # `stop` raises its error.
    with suppress(BaseException):
        pool.drain()
    asked.set()


def _name_of(name: str | None, number: int) -> str:
    """Return the name of the consumer of a process, which the next one in its place has too."""
    return (
        f"pool:work{number}@{of_process()}" if name is None else check_consumer(f"{name}-{number}")
    )


def _imported(path: str) -> Any:
    """Return the object of an import path; raises `BadOption`."""
    if not is_path(path):
        raise BadOption(f"{path}: write MODULE:HANDLER, such as shop.orders:charge")
    sys.path.insert(0, "")
    return imported(path, path)
