"""Serve the console with uvicorn until a signal."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from ignis_console.app import create_app
from ignis_console.config import ConsoleOptions
from queue_core.errors import BadOption
from queue_core.store import Store


def serve(store: Store, options: ConsoleOptions, announce: Callable[[str], None]) -> None:
    """
    Serve until SIGTERM or Ctrl-C; *announce* gets the address at which a person can log in.

    Raises `BadOption` if the address is taken, or a file of the options cannot be read.
    """
    app = create_app(store, options)
    try:
        listening = listen(options.host, options.port)
        with listening:
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                # The address that we check is that of the machine which connects.
                proxy_headers=False,
                server_header=False,
                ssl_certfile=options.certificate,
                ssl_keyfile=options.private_key,
                timeout_graceful_shutdown=5,
            )
            try:
                config.load()
            except OSError as error:
                raise BadOption(f"--tls-certificate, --tls-key: {error}") from error
            address = options.url(listening.getsockname()[1])
            app.state.console.prepare()
            key = app.state.console.auth.key
            announce(f"{address}/login?key={key}" if key else address)
            with _outliving_signals():
                uvicorn.Server(config).run(sockets=[listening])
    finally:
        app.state.console.close()


@contextmanager
def _outliving_signals() -> Iterator[None]:
    """
    Let SIGTERM and Ctrl-C end the block, and not the process.

    When uvicorn stops, it raises the signal again. The actions under way must be logged before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {n: signal.signal(n, lambda *_: None) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `BadOption` if the address is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise BadOption(f"--host {host} --port {port}: {error}") from error
    listening.set_inheritable(True)
    # asyncio sets it only on sockets that name the protocol. Without it, each answer waits 40 ms
    # for the receipt of its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
