"""Work that is done in a forked child of the test: as another user, or with less room."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import traceback
from collections.abc import Callable
from typing import Any

#: A user who owns nothing.
NOBODY = 65534


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What *work* returns in a forked child of this process; what it raises is raised here."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child died"
    outcome, result = pickle.loads(said)
    if outcome == "raised":
        raise result
    return result


def as_nobody(work: Callable[[], Any]) -> Callable[[], Any]:
    """The work done by a user who may only do what all may."""

    def do() -> Any:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return work()

    return do


def with_files_up_to(size: int, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work done where no file can grow beyond *size* bytes."""

    def do() -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return work()

    return do


def _work(work: Callable[[], Any], write_end: int) -> None:
    try:
        try:
            answer = pickle.dumps(("returned", work()))
        except Exception as error:  # noqa: BLE001 - it is raised again in the parent
            traceback.print_exc(file=sys.stderr)
            answer = pickle.dumps(("raised", error))
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)
