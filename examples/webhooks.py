"""Deliver webhooks: post each event to the address of its customer.

    python examples/webhooks.py /tmp/webhooks ada=http://127.0.0.1:8000/ada

Each customer has a limit, so one whose server is slow or down does not hold up the others. An
event is tried again after a failure; one that the customer refuses (410) is dead at once, and a
person decides.
"""

import json
import sys
import time
import urllib.error
import urllib.request

import pyarrow as pa

from queue_core import ConsumerPool, Retry, Store, exponential, limit

EVENT = pa.schema([("customer", pa.string()), ("url", pa.string()), ("body", pa.string())])


def post(event: dict) -> bool:
    """Post one event. An exception is tried again; False is dead at once."""
    request = urllib.request.Request(event["url"], event["body"].encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Idempotency-Key", str(event["_message_id"]))
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 410:
            return False
        raise


def main(path: str, urls: dict[str, str], events: int = 5) -> dict[str, int]:
    """Post some events to each of the customers in *urls*; return the numbers of outcomes."""
    with Store.open(path) as store:
        queue = store.create_queue(
            "webhooks",
            EVENT,
            key="customer",
            exist_ok=True,
            limits=limit("customer", in_flight=2),
            retry=Retry(attempts=5, backoff=exponential(0.2), not_on="rejected"),
        )
        queue.load(
            [
                {"customer": customer, "url": url, "body": json.dumps({"number": number})}
                for customer, url in urls.items()
                for number in range(events)
            ]
        )
        with ConsumerPool(store, "webhooks", post, concurrency=4) as pool:
            while unfinished(store):
                time.sleep(0.05)
        return {**pool.counts, "dead": store.view("queues", "webhooks").column("dead")[0].as_py()}


def unfinished(store: Store) -> int:
    """Return the number of events that were neither delivered nor given up."""
    (row,) = store.view("queues", "webhooks").to_pylist()
    return int(row["waiting"] + row["in_flight"] + row["retrying"])


if __name__ == "__main__":
    if (
        len(sys.argv) < 3
        or sys.argv[1].startswith("-")
        or not all("=" in each for each in sys.argv[2:])
    ):
        sys.exit("usage: python examples/webhooks.py FOLDER CUSTOMER=URL...")
    print(main(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:])))
