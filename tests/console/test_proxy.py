"""The console under a path of a reverse proxy: links, redirects, forms, cookies and live pages."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from ignis_console.acting import ON_SEVERAL
from queue_core import Store
from queue_core.errors import BadOption
from tests.console.clients import console
from tests.factories import make_filled

#: Addresses of forms, which are no pages.
FORMS = ("/logout", "/message", *(f"ignis/actions/{name}" for name in ON_SEVERAL))
needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")

_CONF = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    location /ignis/ {{
      proxy_pass {to};
      proxy_set_header Host $http_host;
      {more}
    }}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, to: str, *more: str) -> Iterator[str]:
    """Run nginx with the console under ``/ignis/``; yield the address of that."""
    folder.mkdir()
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    conf = folder / "nginx.conf"
    headers = " ".join(f"proxy_set_header {each};" for each in more)
    conf.write_text(_CONF.format(folder=folder, port=port, to=to, more=headers))
    process = subprocess.Popen(["nginx", "-p", folder, "-c", conf], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/ignis/"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def folder(tmp_path):
    with Store.open(tmp_path / "store") as store:
        queue = make_filled(store, 5)
        queue.sideline(queue.fire(2), reason="declined")
    return tmp_path / "store"


def links(text: str) -> set[str]:
    found = re.findall(r'(?:href|action|src)="([^"]*)"', text.replace("&amp;", "&"))
    return {link for link in found if not link.startswith("#")}


def crawl(client: httpx2.Client, base: str) -> int:
    """Open each page that another one leads to; return their number."""
    left, seen = [base], set()
    while left:
        url = left.pop()
        seen.add(url)
        answer = client.get(url, headers={"X-Live": "1"})
        assert answer.status_code == 200, (url, answer.status_code, answer.headers)
        if "text/html" in answer.headers["content-type"]:
            for link in links(answer.text):
                assert link.startswith(("/ignis/", "?")), (url, link)
                other = urljoin(url, link)
                if other not in seen and other not in left and not other.endswith(FORMS):
                    left.append(other)
    return len(seen)


def pause(client: httpx2.Client, base: str) -> httpx2.Response:
    form = client.get(f"{base}queues/orders/actions/pause").text
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    return client.post(
        f"{base}queues/orders/actions/pause",
        data=fields,
        headers={"Origin": base.removesuffix("/ignis/")},
    )


@needs_nginx
@pytest.mark.parametrize("passed_on", [True, False])
def test_everything_is_under_the_path_that_a_proxy_has_it_under(folder, tmp_path, passed_on):
    with console(folder, "--root-path", "/ignis/") as (_, address):
        parts = urlsplit(address)
        assert parts.path == "/ignis/login"
        to = f"http://{parts.netloc}{'' if passed_on else '/'}"
        with (
            nginx(tmp_path / "nginx", to, "X-Forwarded-Proto https") as base,
            closing(httpx2.Client()) as client,
        ):
            asked = client.get(base)
            assert (asked.status_code, asked.headers["location"]) == (303, "/ignis/login?next=%2F")
            logged = client.get(f"{base}login?{parts.query}&next=/queues/orders")
            assert logged.headers["location"] == "/ignis/queues/orders"
            cookie = logged.headers["set-cookie"]
            assert cookie.startswith("__Secure-ignis-")
            assert {"Secure", "HttpOnly", "Path=/ignis/"} <= set(cookie.split("; "))
            # A client of plain HTTP keeps it to itself, as a browser does.
            client.headers["Cookie"] = cookie.partition(";")[0]
            assert crawl(client, base) > 15
            done = pause(client, base)
            assert done.status_code == 303
            assert done.headers["location"].startswith("/ignis/queues/orders?done=")
            assert "The queue is paused" in client.get(urljoin(base, done.headers["location"])).text
            assert client.get(f"{base}api/openapi.json").json()["servers"] == [{"url": "/ignis"}]
            out = client.post(f"{base}logout", data={"csrf": client.get(
                f"{base}api/session").json()["csrf"]})  # fmt: skip
            assert out.headers["location"] == "/ignis/login"
            assert "Path=/ignis/" in out.headers["set-cookie"]


@needs_nginx
def test_a_proxy_that_logs_in_may_say_the_path(folder, tmp_path):
    options = ("--proxy-header", "X-Login", "--proxy-operator", "ann")
    with (
        console(folder, *options) as (_, address),
        nginx(
            tmp_path / "nginx", f"{address}/", "X-Login ann", "X-Forwarded-Prefix /ignis"
        ) as base,
        closing(httpx2.Client()) as client,
    ):
        assert crawl(client, base) > 15
        assert pause(client, base).headers["location"].startswith("/ignis/queues/orders?done=")


def test_nobody_else_says_the_path(folder):
    with console(folder) as (_, address), closing(httpx2.Client()) as client:
        parts = urlsplit(address)
        header = {"X-Forwarded-Prefix": "/ignis"}
        answer = client.get(f"http://{parts.netloc}/", headers=header)
        assert answer.headers["location"] == "/login?next=%2F"
        logged = client.get(address, headers=header)
        assert "Secure" not in logged.headers["set-cookie"]


@pytest.mark.parametrize("path", ["ignis", "//evil", "/a b", "/ignis?x", "/queues"])
def test_a_path_that_cannot_be_is_refused(folder, path):
    from ignis_console.app import create_app
    from ignis_console.config import ConsoleOptions

    with Store.open(folder) as store, pytest.raises(BadOption, match="--root-path"):
        create_app(store, ConsoleOptions(root_path=path))
