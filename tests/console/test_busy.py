"""A long transaction of another process makes actions wait, and no page."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ignis_console.console import ACTIONS
from tests.console.clients import logged, token

ALL = 20


def test_pages_answer_while_actions_wait_for_the_catalog(operator, store, queue):
    csrf = token(operator)
    pages = ("/api/queues", "/queues/orders", "/queues/orders/messages", "/problems")
    for path in pages:
        assert operator.get(path).status_code == 200
    body = {"expected": 100, "concurrency": 3, "csrf": csrf}
    begun = threading.Barrier(ALL + 1)

    def scale(_):
        begun.wait()
        answer = operator.post("/api/queues/orders/actions/scale", json=body)
        return answer.status_code, time.monotonic()

    writer = sqlite3.connect(store.catalog.file, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(ALL) as threads:
        answers = [threads.submit(scale, each) for each in range(ALL)]
        begun.wait()
        time.sleep(0.3)
        for path in pages:
            assert operator.get(path).status_code == 200
        deadline = time.monotonic() + 20
        while sum(each.done() for each in answers) < ALL - ACTIONS and time.monotonic() < deadline:
            time.sleep(0.05)
        released = time.monotonic()
        writer.execute("ROLLBACK")
    writer.close()

    found = [answer.result() for answer in answers]
    assert [status for status, at in found if at < released] == [503] * (ALL - ACTIONS)
    assert [status for status, at in found if at >= released] == [200] * ACTIONS
    assert queue.refresh().info.settings.concurrency == 3
    assert len(logged(operator)) == ACTIONS
