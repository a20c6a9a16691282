"""The metrics at /metrics: those of `ignis metrics`, for a token or a login."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ignis_console.auth import MOST_FAILURES
from ignis_console.config import ConsoleOptions
from ignis_console.console import Console
from ignis_console.pages import PAGES
from queue_core import BadOption, CatalogUnavailable
from queue_core.watching import prometheus
from tests.console.clients import login_line

TOKEN = "0123456789abcdef"


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    return file


def bearer(text=TOKEN):
    return {"Authorization": f"Bearer {text}"}


def scraped(text):
    return {
        (each.name, *sorted(each.labels.items())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if not each.name.endswith(("_age_seconds", "_wait_seconds", "_free_bytes"))
    }


def test_the_token_opens_the_metrics_and_nothing_else(serve, store, queue, token):
    client = serve(metrics_token=token)

    answer = client.get("/metrics", headers=bearer())

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert scraped(answer.text) == scraped(prometheus.page(store))
    assert scraped(answer.text)["ignis_waiting_messages", ("queue", "orders")] == 6
    for page in PAGES:
        for path in (page.path, page.api):
            address = path.format(queue="orders", message_id=1)
            refused = client.get(address, headers=bearer(), follow_redirects=False)
            assert refused.status_code in (303, 401), path
    form = {"expected": "9"}
    path = "/api/queues/orders/actions/pause"
    assert client.post(path, json=form, headers=bearer()).status_code == 401
    assert client.post("/metrics", headers=bearer()).status_code == 405


def test_a_login_that_may_look_reads_them(looker, serve, queue, tmp_path):
    users = tmp_path / "users"
    users.write_text(login_line("scraper", "look", "correct horse battery"))
    script = serve(users=users).get("/metrics", auth=("scraper", "correct horse battery"))

    for answer in (looker.get("/metrics"), script):
        assert "ignis_waiting_messages" in answer.text


def test_nobody_else_reads_them(serve, queue, token):
    for client in (serve(), serve(metrics_token=token)):
        assert client.get("/metrics").status_code == 401
        for wrong in ("", "x", TOKEN + "x", "é", client.app.state.console.auth.key):
            headers = [(b"authorization", f"Bearer {wrong}".encode())]
            assert client.get("/metrics", headers=headers).status_code == 401
        for _ in range(MOST_FAILURES):
            answer = client.get("/metrics", headers=bearer("x"))
        assert answer.status_code == 429


def test_the_token_is_as_good_behind_a_proxy(serve, queue, token):
    client = serve(metrics_token=token, proxy_header="X-User")

    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=bearer()).status_code == 200


def test_a_bad_token_is_refused_at_the_start(store, tmp_path):
    for text in ["", "short", "two words of a token", "0123456789abcdeé"]:
        file = tmp_path / "token"
        file.write_text(text)
        for path in (file, tmp_path / "none"):
            with pytest.raises(BadOption, match="--metrics-token"):
                Console(store, ConsoleOptions(metrics_token=path))


def test_scrapes_share_one_transaction(operator, store, queue, begun):
    operator.get("/")
    begun.clear()
    start = time.monotonic()

    for _ in range(20):
        operator.get("/metrics")

    # On a busy machine, they are read again each second, and the figures in each three.
    assert len(begun) <= 2 + 2 * (time.monotonic() - start)


def test_a_scrape_fails_while_the_catalog_cannot_be_read(operator, store, queue, monkeypatch):
    def fail(*_, **__):
        raise CatalogUnavailable("the database is down")

    monkeypatch.setattr(store.catalog, "read", fail)

    assert operator.get("/metrics").status_code == 503
