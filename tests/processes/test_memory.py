"""The memory of a process whose pool handles many more bytes than it may hold."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import Store
from tests.factories import make_queue

pytestmark = pytest.mark.nightly

#: A megabyte, and the size and the number of the messages: 200 MB.
MB = 1 << 20
SIZE, COUNT = 2 * MB, 100

# A process of its own: the peak is that of its life. Arrow's allocator keeps what was freed for a
# while, and would hide how much is needed; the one of the system does so for small blocks only.
HANDLE = f"""
import re, sys
from pathlib import Path
from queue_core import ConsumerPool, Store

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

with Store.open(sys.argv[1], create=False) as store:
    store.queue("orders").peek(1)
    before = peak()
    with ConsumerPool(store, "orders", lambda _: True, concurrency=4, max_bytes={8 * MB}) as pool:
        assert pool.drain(240)
    assert pool.counts == {{"deleted": {COUNT}}}, pool.counts
    print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_pool_needs_memory_for_the_bytes_that_it_may_hold_only(tmp_path):
    with Store.open(tmp_path / "store") as store:
        queue = make_queue(store, schema=pa.schema([("payload", pa.binary())]))
        for _ in range(COUNT):
            queue.load([{"payload": bytes(SIZE)}])

    done = subprocess.run(
        [sys.executable, "-c", HANDLE, str(tmp_path / "store")],
        env={"ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    # The messages that it holds, copies of them while a firing is divided, and rows.
    assert int(done.stdout) < 60 * MB
