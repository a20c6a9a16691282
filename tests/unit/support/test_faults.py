"""Crash points do nothing until a test arms one."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from queue_core.support import faults
from tests.tree import ROOT
from tests.waiting import PATIENCE

PASSED = re.compile(r"faults\.point\(\s*\"([a-z_.]+)\"")
TRANSACTED = re.compile(r"\b(?:transact|Rounds)\(\s*catalog,\s*\"([a-z_]+)\"")


def ends(pid, within):
    """Whether a process is gone in time, or a zombie that is not collected yet."""
    state = Path(f"/proc/{pid}/stat")
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def passed_in_the_product():
    texts = [
        file.read_text()
        for package in ("queue_core", "ignis_source", "ignis_sink", "ignis_cli", "pyspark_ignis")
        for file in (ROOT / package).rglob("*.py")
    ]
    passed = {name for text in texts for name in PASSED.findall(text)}
    for text in texts:
        for verb in TRANSACTED.findall(text):
            passed |= {f"{verb}.before_commit", f"{verb}.committed"}
    return passed


def test_an_armed_point_raises_once_at_its_passage_unless_it_is_disarmed():
    for name in faults.POINTS:
        assert faults.point(name) is None
    for text, passages in (("settle.committed=raise", 1), ("settle.committed:3=raise", 3)):
        faults.arm(text)
        for _ in range(passages - 1):
            faults.point("settle.committed")
        faults.point("settle.before_commit")
        with pytest.raises(faults.InjectedFault, match=r"settle\.committed"):
            faults.point("settle.committed")
        assert faults.point("settle.committed") is None
    faults.arm("settle.committed=raise")
    faults.arm(None)
    assert faults.point("settle.committed") is None
    assert not issubclass(faults.InjectedFault, Exception), "the product could catch it"


@pytest.mark.parametrize("text", ["nonsense", "fire:2", "fire.commited=raise"])
def test_arming_an_unknown_point_is_refused(text):
    with pytest.raises(ValueError, match="unknown fault point"):
        faults.arm(text)


@pytest.mark.parametrize("text", ["fire.committed=explode", "fire.committed:x", "fire.committed:0"])
def test_arming_a_point_so_that_it_can_never_act_is_refused(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        faults.arm(text)


def test_the_environment_arms_a_process_which_then_dies_as_by_kill_9():
    script = (
        "from queue_core.support import faults; faults.point('fire.committed'); print('survived')"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={"IGNIS_FAULT": "fire.committed"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert process.returncode == -signal.SIGKILL
    assert "survived" not in process.stdout
    assert "fire.committed" in process.stderr


def test_a_whole_session_can_be_killed_with_its_children():
    script = (
        "import subprocess, sys; from queue_core.support import faults;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)']);"
        "print(child.pid, flush=True); faults.point('fire.committed')"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={"IGNIS_FAULT": "fire.committed=session"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        start_new_session=True,
    )

    assert process.returncode == -signal.SIGKILL
    assert ends(int(process.stdout), within=PATIENCE)


def test_every_point_is_passed_somewhere_and_every_passage_is_listed():
    assert passed_in_the_product() == set(faults.POINTS)
