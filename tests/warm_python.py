"""Python for Spark whose processes are forked from one that has imported everything already.

Spark starts some Python processes for each query, and each imports PySpark, pandas and ignis for
half a second. A program in their place asks a server, `serve`, to fork; the child has its streams,
arguments, folder and environment. Drivers that tests start by themselves have a plain Python.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: What processes of Spark import, but for the module that each of them runs.
_IMPORTED = [
    *("pandas", "psycopg", "pyarrow.compute", "sqlalchemy.dialects.postgresql.psycopg"),
    *("pyspark.worker", "pyspark.sql.streaming.python_streaming_source_runner"),
    *("pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read"),
    *("pyspark.sql.worker.write_into_data_source", "pyspark_ignis.source", "queue_core.store"),
    *("ignis_source.schema", "ignis_source.stream"),
    *("ignis_sink.load", "ignis_sink.planning", "ignis_sink.publishing", "ignis_sink.settle"),
    "queue_core.selector.grammar",
]
#: Ends as its child does; a signal that ends it ends the child.
_PROGRAM = """\
#!{python} -IS
import json, os, signal, socket, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]) + "\\n"
socket.send_fds(server, [request.encode()], [0, 1, 2])
child = int.from_bytes(server.recv(4), "big")
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
os._exit(0 if server.recv(1) else 1)
"""


@contextmanager
def warm_python() -> Iterator[str]:
    """Start the server; yield the program that takes the place of Python."""
    # Not pytest's tmp_path: a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="ignis-python-") as folder:
        address, program = f"{folder}/server", Path(folder, "python")
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        # As Spark has it for its own.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "tests.warm_python", address]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server did not start"
            # At the end of its input the server ends, so also with this process.
            yield str(program)


def serve(address: str) -> None:
    """Import everything, and fork a child for each request."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asking, _ = listening.accept()
            with asking:
                request, streams = _received(asking)
                if os.fork() == 0:
                    listening.close()
                    _work(asking, streams, *request)
                for stream in streams:
                    os.close(stream)


def _received(asking: socket.socket) -> tuple[Any, list[int]]:
    """The arguments, folder and environment of a process, and its three streams."""
    text, streams, _, _ = socket.recv_fds(asking, 1 << 16, 3)
    while not text.endswith(b"\n"):
        text += asking.recv(1 << 16)
    return json.loads(text), streams


def _work(
    asking: socket.socket,
    streams: list[int],
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
) -> None:
    """Run the module that the arguments name, in this child, and end."""
    # Children of its own do not keep the program waiting.
    os.register_at_fork(after_in_child=asking.close)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder, *filter(None, paths)]
    from queue_core.support import faults

    faults.arm(os.environ.get("IGNIS_FAULT"))
    _, module, *rest = arguments
    sys.argv = [module, *rest]
    sys.modules.pop(module, None)
    asking.sendall(os.getpid().to_bytes(4, "big"))
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        failed: Any = None
    except SystemExit as end:
        failed = end.code
    except BaseException as error:  # noqa: BLE001 - it ends this process, as it does elsewhere
        sys.excepthook(type(error), error, error.__traceback__)
        failed = error
    sys.stdout.flush()
    sys.stderr.flush()
    if not failed:
        asking.sendall(b".")
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
