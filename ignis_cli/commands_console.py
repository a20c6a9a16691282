"""The commands `ignis console` and `ignis console-user`: pages for the person on call."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from ignis_cli import logs
from ignis_cli.app import Host, Port, command, duration
from ignis_cli.display import answer
from ignis_cli.invocation import current
from ignis_cli.logs import LogFormat
from ignis_console import passwords
from ignis_console.config import LOOPBACK, ConsoleOptions
from ignis_console.passwords import Role
from queue_core.support.import_paths import missing

_OPERATE = "Operate"


@command(_OPERATE)
def console(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8413,
    users: Path | None = None,
    proxy_header: str | None = None,
    proxy_operator: list[str] | None = None,
    proxy_address: list[str] | None = None,
    name: list[str] | None = None,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    plain: bool = False,
    root_path: str = "",
    secure_cookie: bool = False,
    look_only: bool = False,
    action_log: Path | None = None,
    metrics_token: Path | None = None,
    oldest: str = "15m",
    log_format: LogFormat = LogFormat.text,
) -> None:
    """
    Serve the console: web pages with the queues of the store, until SIGTERM or Ctrl-C.

    It listens on this machine only, unless --host says otherwise. While no page is open, it
    does not read the store.

    Args:
        users: File of logins, with lines of `ignis console-user`. By default, a key that the
            command prints logs in.
        proxy_header (HEADER): Header in which a reverse proxy names the login, such as
            X-Forwarded-User.
        proxy_operator (NAME): A login of the proxy that may operate. Repeatable.
        proxy_address (ADDRESS): Address from which the header is believed. Repeatable. By default,
            this machine.
        name (HOST): A further name under which browsers reach the console. Repeatable.
        tls_certificate: File of the TLS certificate, in PEM.
        tls_key: File of its private key, in PEM.
        plain: Let other machines connect without TLS, such as a proxy that has it.
        root_path (PATH): Path under which a reverse proxy has the console, such as /ignis. With
            --proxy-header, the header X-Forwarded-Prefix may also say it.
        secure_cookie: Let browsers send the cookie of the login over TLS alone. By default, if the
            console has TLS, or the header X-Forwarded-Proto of the proxy says https.
        look_only: No login may change anything.
        action_log: File to which each action is appended, as a line of JSON.
        metrics_token: File with a token, with which Prometheus reads /metrics, but no page.
        oldest: Time in main after which a waiting message is a problem, such as 15m.
        log_format: Write the log as lines of text, or of json with fields such as queue.
    """
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
        root_path=root_path.rstrip("/"),
        secure_cookie=secure_cookie,
        look_only=look_only,
        action_log=action_log,
        metrics_token=metrics_token,
        oldest_wanted=duration("oldest", oldest),
    )
    # After the options are checked, since it takes a while to import.
    try:
        from ignis_console.server import serve
    except ModuleNotFoundError as error:
        raise missing("console", error, "console") from error
    logs.start(log_format)
    with current.get().store() as store:
        serve(store, options, lambda url: logs.announce(f"console at {url} ; Ctrl-C ends"))


@command(_OPERATE)
def console_user(name: str, *, role: Role = Role.LOOK) -> None:
    """
    Print the line of a login for the file of `ignis console --users`.

    It asks for the password, or reads the first line of standard input if that is not a terminal.
    A password has 12 or more characters.

    Args:
        name (NAME): Name of the login.
        role: What the login may do.
    """
    passwords.check_name(name)
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    line = passwords.line(name, role, password)
    answer(line, name=name, role=role.value, line=line)
