"""The command `ignis metrics`: an endpoint for Prometheus."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

from ignis_cli.app import Host, Port, command
from ignis_cli.display import complain, in_json, show_json
from ignis_cli.invocation import current
from queue_core.errors import BadOption
from queue_core.support.extras import missing


@command("Inspect")
def metrics(
    host: Host = "127.0.0.1",
    port: Port = 9464,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and exit.")] = False,
) -> None:
    """
    Serve the metrics of the store for Prometheus, until SIGTERM or Ctrl-C.

    Each scrape reads the catalog in one transaction. Nobody has to log in. With --once and --json,
    each value is a line with its metric, its labels and its value.
    """
    try:
        from queue_core.watching import prometheus, readings
    except ModuleNotFoundError as error:
        raise missing("metrics", error, "metrics") from error
    with current.get().store() as store:
        if once and in_json.get():
            for reading in readings.flat(store.catalog):
                show_json(reading)
            return
        if once:
            sys.stdout.write(prometheus.page(store.catalog))
            return
        try:
            listening, stop = prometheus.serve(store.catalog, host, port)
        except OSError as error:
            raise BadOption(f"--host {host} --port {port}: {error}") from error
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        signal.signal(signal.SIGINT, lambda *_: ended.set())
        complain(f"metrics at http://{host}:{listening}/metrics; Ctrl-C ends")
        ended.wait()
        stop()
