"""Send reminders, each at its time; cancel one before it is sent.

    python examples/reminders.py /tmp/reminders

The column that the setting `hold_until` names says until when a message waits. A message that
waits can be chosen and deleted.
"""

import sys
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from queue_core import ConsumerPool, Store


def main(path: str, seconds: float = 2.0) -> list[str]:
    """Plan three reminders within *seconds*, cancel one; return the recipients of the others."""
    sent: list[str] = []

    def send(reminder: dict) -> bool:
        sent.append(reminder["to"])
        return True

    with Store.open(path) as store:
        queue = store.create_queue(
            "reminders",
            pa.schema([("to", pa.string()), ("send_at", pa.timestamp("us", "UTC"))]),
            hold_until="send_at",
            exist_ok=True,
        )
        now = datetime.now(UTC)
        names = ("ada", "bob", "eve")
        queue.load(
            [
                {"to": name, "send_at": now + timedelta(seconds=seconds * n / 2)}
                for n, name in enumerate(names)
            ]
        )
        queue.choose(selector="to = 'bob'").delete()
        with ConsumerPool(store, "reminders", send, concurrency=1):
            while queue.browse().num_rows:
                time.sleep(seconds / 20)  # a service would do other work
    return sent


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python examples/reminders.py FOLDER")
    print(main(sys.argv[1]))
