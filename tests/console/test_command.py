"""The commands `ignis console` and `ignis console-user`."""

import http.client
import json
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from base64 import b64encode
from contextlib import closing, suppress

import pytest

from ignis_console import passwords, server
from queue_core import Store
from tests.command_line import answer, refusal, runner
from tests.console.clients import console, login_line
from tests.factories import make_filled, make_queue
from tests.waiting import until

PASSWORD = "correct horse battery"


def sideline(site, queue, messages):
    """Act as a script does, which loses the answer when the console ends."""
    host = http.client.HTTPConnection(site.removeprefix("http://").partition("/")[0], timeout=30)
    login = b64encode(f"ann:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    body = json.dumps({"selector": "amount >= 0", "expected": messages})
    with suppress(OSError, http.client.HTTPException):
        host.request("POST", f"/api/queues/{queue}/actions/sideline", body, headers)
        host.getresponse()


@pytest.mark.nightly
def test_an_action_under_way_is_finished_and_noted_when_the_console_is_ended(
    address, store, tmp_path
):
    queue = make_filled(store, 6)
    log, users = tmp_path / "actions.jsonl", tmp_path / "users"
    users.write_text(login_line("ann", "operate", PASSWORD) + "\n")
    files = ("--action-log", str(log), "--users", str(users))
    with (
        closing(sqlite3.connect(store.catalog.file, isolation_level=None)) as writer,
        console(store.catalog.file.parent, *files) as (process, site),
    ):
        writer.execute("BEGIN IMMEDIATE")
        acting = threading.Thread(target=sideline, args=(site, "orders", 6))
        acting.start()
        until(lambda: log.exists() and "sideline" in log.read_text())
        process.terminate()
        time.sleep(7)
        assert process.poll() is None, "it waits for the action"
        writer.execute("ROLLBACK")
        assert process.wait(60) == 0
    acting.join(60)

    begin, end = map(json.loads, log.read_text().splitlines())
    assert (begin["action"], begin["ended"], begin["id"]) == ("sideline", False, end["id"])
    assert (end["messages"], end["error"], end["ended"]) == (6, None, True)
    assert queue.browse(magazine="sideline").num_rows == 6


def test_ctrl_c_ends_it_in_order_too(tmp_path):
    Store.open(tmp_path).close()
    with console(tmp_path) as (process, site):
        host = http.client.HTTPConnection(
            site.removeprefix("http://").partition("/")[0], timeout=60
        )
        host.request("GET", "/")
        host.getresponse().read()
        host.close()
        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 0


def test_a_line_of_a_login_is_printed_and_works(address, tmp_path):
    result = runner(address)("console-user", "ann", "--role", "operate", input=PASSWORD + "\n")

    def role_of(name, line):
        logins = passwords.parse(line.encode(), tmp_path)
        return passwords.verify(logins, name, PASSWORD).role

    assert result.exit_code == 0
    assert role_of("ann", result.stdout) == "operate"
    (found,) = answer(runner(address)("--json", "console-user", "bob", input=PASSWORD + "\n"))
    assert (found["name"], found["role"]) == ("bob", "look")
    assert role_of("bob", found["line"]) == "look"
    assert "12 or more" in refusal(runner(address)("console-user", "ann", input="short\n"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "--tls-certificate"),
        (["--users", "none"], "--users none"),
        (["--action-log", "/"], "--action-log /"),
        (["--oldest", "soon"], "--oldest soon"),
        (["--proxy-header", "X-User", "--proxy-address", "here"], "--proxy-address 'here'"),
        (["--proxy-header", "Host"], "--proxy-header Host"),
        (["--host", "256.0.0.1"], "--host 256.0.0.1"),
    ],
)
def test_wrong_options_are_refused(store, address, arguments, said):
    assert said in refusal(runner(address)("console", "--port", "0", *arguments))


def test_options_are_checked_before_what_takes_long_to_import(store, address, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("ignis_console")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)

    said = refusal(runner(address)("console", "--host", "0.0.0.0"))

    assert "--tls-certificate" in said


def test_a_missing_library_is_named(store, address, monkeypatch):
    for name in [each for each in sys.modules if each.startswith(("ignis_console", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    said = refusal(runner(address)("console"))

    assert "uvicorn is not installed: pip install 'ignis-queue[console]'" in said


def test_no_answer_waits_for_the_receipt_of_its_headers():
    """Without TCP_NODELAY, each answer of two packets takes 40 ms."""
    with (
        server.listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_serves_with_tls_until_a_signal(tmp_path):
    folder, certificate, key = tmp_path / "store", tmp_path / "c.pem", tmp_path / "k.pem"
    with Store.open(folder) as store:
        make_queue(store)
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl makes a certificate")
    users = tmp_path / "users"
    users.write_text(login_line("ann", "look", PASSWORD))
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key), "--users", str(users)]
    with console(folder, *options) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(certificate))
        request = urllib.request.Request(url + "/api/queues")
        request.add_header("Authorization", "Basic YW5uOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==")
        with urllib.request.urlopen(request, context=trusted, timeout=60) as answer:
            assert [row["name"] for row in json.load(answer)["queues"]] == ["orders"]
        plain = http.client.HTTPConnection(url.removeprefix("https://"), timeout=5)
        plain.request("GET", "/")
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
        plain.close()
