"""Kill a whole session: a Spark driver's Java and workers are in several process groups."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path


def kill_session(leader: int) -> int:
    """Kill every process of the session of *leader* with SIGKILL; return their number."""
    killed: set[int] = set()
    while alive := {each for each in _processes() if _session(each) == leader} - killed:
        for process in alive:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        killed |= alive
        # Java may have started another worker meanwhile.
        time.sleep(0.05)
    return len(killed)


def _processes() -> list[int]:
    if Path("/proc/self").exists():
        names = [entry.name for entry in Path("/proc").iterdir()]
    else:
        # macOS has no /proc.
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True)
        names = listed.stdout.split()
    return [int(name) for name in names if name.isdigit()]


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:
        return None
