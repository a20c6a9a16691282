"""Work that is done in a forked child of the test: as another user, or with less room."""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: A user who owns nothing.
NOBODY = 65534

# Of unshare(2) and mount(2).
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_RECURSIVE, _PRIVATE = 0x4000, 0x40000


def in_a_fork(work: Callable[[], Any]) -> Any:
    """Run *work* in a forked child of this process; return its result, or raise its error."""
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
    """The work, done by a user without special rights."""

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


def on_a_disk_of(size: int, folder: Path, work: Callable[[], Any]) -> Callable[[], Any]:
    """
    The work done where *folder* is a disk of *size* bytes, which only the work can see.

    It needs no root where users may have namespaces of their own; raises `NoDisk` elsewhere.
    """

    def do() -> Any:
        libc = ctypes.CDLL(None, use_errno=True)
        user, group = os.geteuid(), os.getegid()
        if libc.unshare(_NEW_MOUNTS) and libc.unshare(_NEW_MOUNTS | _NEW_USERS) == 0:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None)
        options = f"size={size}".encode()
        if libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, options):
            raise NoDisk(os.strerror(ctypes.get_errno()))
        return work()

    return do


class NoDisk(Exception):
    """This user may have neither a disk nor a namespace for one."""


def _work(work: Callable[[], Any], write_end: int) -> None:
    try:
        try:
            answer = pickle.dumps(("returned", work()))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the parent
            traceback.print_exc(file=sys.stderr)
            raised = error if isinstance(error, Exception) else AssertionError(str(error))
            answer = pickle.dumps(("raised", raised))
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)
