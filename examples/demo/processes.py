"""Kill a whole session: a Spark driver's Java and workers are in several process groups."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path


def kill_session(leader: int) -> int:
    """Kill every process of the session of *leader* with SIGKILL; return their number."""
    killed: set[int] = set()
    while alive := _of_session(leader) - killed:
        for process in alive:
            _kill(process)
        killed |= alive
        # Java may have started another worker meanwhile.
        time.sleep(0.05)
    return len(killed)


def _of_session(leader: int) -> set[int]:
    return {process for process in _processes() if _session(process) == leader}


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


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
