"""One file for each workload; `WORKLOADS` has them in the order of the table."""

from __future__ import annotations

from benchmarks.peers.workload import Workload
from benchmarks.peers.workloads.bulk import Bulk
from benchmarks.peers.workloads.handlers import Handlers
from benchmarks.peers.workloads.idle import Idle
from benchmarks.peers.workloads.many import Many
from benchmarks.peers.workloads.sizes import Sizes
from benchmarks.peers.workloads.steady import Steady
from benchmarks.peers.workloads.stream import Stream
from benchmarks.peers.workloads.tasks import Tasks
from benchmarks.peers.workloads.trickle import Trickle

_ALL = (Bulk, Tasks, Handlers, Steady, Stream, Sizes, Trickle, Many, Idle)
WORKLOADS: dict[str, type[Workload]] = {each.name: each for each in _ALL}
