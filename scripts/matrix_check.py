"""What each Python of `make matrix` does: handle the message of the last one, and load its own."""

import platform
import sys

import pyarrow as pa

import queue_core
from queue_core import ConsumerPool, Store

assert all(hasattr(queue_core, name) for name in queue_core.__all__)

with Store.open(sys.argv[1]) as store:
    queue = store.create_queue("seen", pa.schema([("python", pa.string())]), exist_ok=True)
    before = queue.peek().column("python").to_pylist()
    with ConsumerPool(store, "seen", lambda message: True) as pool:
        pool.drain()
    assert pool.counts.get("deleted", 0) == len(before), pool.counts
    queue.load([{"python": platform.python_version()}])
    libraries = f"pyarrow {pa.__version__}"
    print(f"Python {platform.python_version()}, {libraries}: handled the message of {before}")
