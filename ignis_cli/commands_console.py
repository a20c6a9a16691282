"""The commands `ignis console` and `ignis console-user`: pages for the person on call."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ignis_cli.app import Host, Port, command, duration
from ignis_cli.display import answer, complain
from ignis_cli.invocation import current
from queue_core.support.extras import missing

_OPERATE = "Operate"


class LoginRole(StrEnum):
    """What a login may do."""

    look = "look"
    operate = "operate"


@command(_OPERATE)
def console(
    host: Host = "127.0.0.1",
    port: Port = 8413,
    users: Annotated[
        Path | None,
        typer.Option(
            help="File of logins, with lines of `ignis console-user`. By default, a key that the "
            "command prints logs in."
        ),
    ] = None,
    proxy_header: Annotated[
        str | None,
        typer.Option(
            metavar="HEADER",
            help="Header by which a reverse proxy names the login, such as X-Forwarded-User.",
        ),
    ] = None,
    proxy_operator: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A login of the proxy that may operate. Repeatable."),
    ] = None,
    proxy_address: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address from which the header is believed. Repeatable. By default, this machine.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A name by which browsers reach the console, beside --host. Repeatable.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="File of the TLS certificate, in PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="File of its private key, in PEM.")] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Let other machines connect without TLS, such as a proxy that has it."
        ),
    ] = False,
    look_only: Annotated[
        bool, typer.Option("--look-only", help="Nobody may change anything.")
    ] = False,
    action_log: Annotated[
        Path | None,
        typer.Option(help="File to which each action is appended, as a line of JSON."),
    ] = None,
    metrics_token: Annotated[
        Path | None,
        typer.Option(help="File with a token, with which Prometheus reads /metrics, and no page."),
    ] = None,
    oldest: Annotated[
        str, typer.Option(help="Age at which a waiting message is a problem, such as 15m.")
    ] = "15m",
) -> None:
    """
    Serve the console: web pages with the queues of the store, until SIGTERM or Ctrl-C.

    It listens on this machine only, unless --host says otherwise. While nobody looks, it does not
    read the store.
    """
    # Checked first: what serves the pages takes a while to import.
    from ignis_console.config import LOOPBACK, ConsoleOptions

    options = ConsoleOptions(
        host=host,
        port=port,
        users=users,
        proxy_header=proxy_header,
        proxy_operators=frozenset(proxy_operator or ()),
        proxy_addresses=frozenset(proxy_address or LOOPBACK),
        names=tuple(name or ()),
        certificate=tls_certificate,
        private_key=tls_key,
        plain=plain,
        look_only=look_only,
        action_log=action_log,
        metrics_token=metrics_token,
        oldest_wanted=duration("oldest", oldest),
    )
    try:
        from ignis_console.server import serve
    except ModuleNotFoundError as error:
        raise missing("console", error, "console") from error
    with current.get().store() as store:
        serve(store, options, lambda url: complain(f"console at {url} ; Ctrl-C ends"))


@command(_OPERATE)
def console_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the login.")],
    role: Annotated[LoginRole, typer.Option(help="What the login may do.")] = LoginRole.look,
) -> None:
    """
    Print the line of a login for the file of `ignis console --users`.

    It asks for the password, or reads the first line of standard input if that is no terminal. A
    password has 12 or more characters.
    """
    from ignis_console import passwords

    passwords.check_name(name)
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    line = passwords.line(name, passwords.Role(role.value), password)
    answer(line, name=name, role=role.value, line=line)
