"""What an open console costs the store."""

import gc
import time

import pytest
from sqlalchemy import event
from starlette.testclient import TestClient

from ignis_console.app import create_app
from ignis_console.config import ConsoleOptions
from ignis_console.console import FIGURES_SECONDS
from ignis_console.details import read_queue
from ignis_console.pages import PAGES
from queue_core import Store
from queue_core.upkeep.tasks.purge import purge
from tests.console.clients import ORIGIN, log_in, token
from tests.factories import make_queue, orders
from tests.statements import counted

pytestmark = pytest.mark.nightly

#: The most transactions a second while somebody looks.
MOST = 2.0


def test_a_look_at_figures_that_were_just_read_costs_nothing(operator, queue, begun):
    for path in ("/", "/problems", "/queues/orders"):
        operator.get(path)
    begun.clear()
    start = time.monotonic()

    for _ in range(20):
        operator.get("/")

    # On a busy machine, the figures are read once more in three seconds.
    assert len(begun) <= 2 + time.monotonic() - start


def test_nothing_is_read_while_nobody_looks(operator, queue, begun):
    operator.get("/")
    begun.clear()

    time.sleep(2 * FIGURES_SECONDS)

    assert begun == []
    assert operator.get("/").status_code == 200


def test_no_page_writes(operator, store, queue):
    message = queue.choose("all").ids[0].as_py()

    with counted(store) as statements:
        for page in PAGES:
            operator.get(page.path.format(queue="orders", message_id=message))

    writes = ("INSERT", "UPDATE", "DELETE")
    assert [each for each in statements if each.split(None, 1)[0].upper() in writes] == []


def test_a_queue_is_read_in_one_transaction(store, queue, begun):
    read_queue(store, "orders", "hour")

    assert len(begun) == 1


@pytest.mark.postgres
def test_postgresql_counts_two_transactions_a_second_however_many_look(postgres, tmp_path):
    """With the tests of connections, which count as transactions too."""
    counted = []
    with (
        postgres.database() as url,
        Store.open(catalog=url, storage=str(tmp_path)) as opened,
    ):
        for name in ("orders", "mail"):
            make_queue(opened, name).load(orders(3))
        app = create_app(opened, ConsoleOptions())
        viewers = [TestClient(app, base_url=ORIGIN) for _ in range(5)]
        for viewer in viewers:
            log_in(viewer)
        paths = ["/", "/problems", "/queues/orders", "/queues/mail", "/queues/orders/sideline"]
        for path in paths:
            viewers[0].get(path)
        event.listen(opened.catalog.engine, "begin", counted.append)
        event.listen(opened.catalog.engine, "checkout", lambda *_: counted.append(None))
        start = time.monotonic()

        while time.monotonic() - start < 9:
            for viewer in viewers:
                assert {viewer.get(path).status_code for path in paths} == {200}
            time.sleep(0.1)

        app.state.console.close()
    assert 2 <= len(counted) <= MOST * (time.monotonic() - start)


def test_actions_write_one_row_each_to_the_log_of_tasks_which_a_vacuum_forgets(
    operator, store, queue
):
    path = "/api/queues/orders/actions/"
    csrf = token(operator)
    for _ in range(3):
        for action in ("sideline", "redrive", "pause", "resume"):
            body = {"expected": 100, "csrf": csrf}
            if action in ("sideline", "redrive"):
                body["all" if action == "sideline" else "force"] = True
            answer = operator.post(path + action, json=body)
            assert answer.status_code == 200, answer.text
            operator.get("/problems")

    rows = store.view("reports", "orders").num_rows

    # One row per shard; the queue has two. To pause moves nothing.
    assert 6 <= rows <= 6 * 2
    purge(store.catalog, older_than=0)
    assert store.view("reports", "orders").num_rows == 0


@pytest.fixture
def _unfrozen():
    # Another test of this process may have opened a console.
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_unfrozen")
def test_garbage_is_not_sought_in_what_the_start_has_left(serve):
    assert gc.get_freeze_count() == 0

    serve().app.state.console.prepare()

    assert gc.get_freeze_count() > 10_000


@pytest.mark.usefixtures("_unfrozen")
def test_a_console_that_was_prepared_has_figures_for_the_first_page(serve, queue, begun):
    client = serve()
    log_in(client)
    start = time.monotonic()

    client.app.state.console.prepare()

    assert len(begun) == 1
    assert client.get("/api/queues").json()["waiting"] == 6
    assert len(begun) <= 1 + (time.monotonic() - start) / FIGURES_SECONDS
