"""What a process asks of the disk, in order, as strace of Debian records it.

Only what changes files below one folder is kept. A write in the middle of which another thread is
recorded counts where it ends. The processes that are recorded fork no children that write.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STRACE = shutil.which("strace")
_CALLS = (
    "open,openat,creat,close,lseek,write,pwrite64,writev,ftruncate,truncate,fallocate,fsync,"
    "fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,"
    "sendfile,copy_file_range"
)
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>)?(.*)")
_RETURNS = re.compile(r"(.*)\) += (-?\d+)(?:<.*>)?(?: .*)?", re.DOTALL)
_FILE = re.compile(r"(?:(\d+)|AT_FDCWD)<((?:[^<>]|<[^<>]*>)*)>(?:\(deleted\))?")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
#: Longer than any write of a workload.
_LONGEST = 1 << 24


@dataclass(frozen=True)
class Operation:
    """One change of a file or a folder, or a sync."""

    #: write, truncate, sync, create, rename, unlink, mkdir, rmdir.
    kind: str
    path: str
    offset: int = 0
    data: bytes = b""
    #: Where a rename leads.
    to: str = ""


def root_of(folder: Path) -> Path:
    """Where a workload that is recorded in a folder works."""
    return (folder / "root").resolve()


def recorded(folder: Path) -> list[Operation]:
    """Run the workload, and return what it asked of the disk."""
    assert STRACE is not None
    root, trace = root_of(folder), folder / "trace"
    root.mkdir()
    command = [STRACE, "-f", "-y", "-xx", "-s", str(_LONGEST), "--seccomp-bpf", "-o", str(trace)]
    command += ["-e", f"trace={_CALLS}", sys.executable, "-m", "tests.power.workload", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return list(_operations(trace, str(root)))


def _operations(trace: Path, folder: str) -> Iterator[Operation]:
    inside = f"{folder}/"
    #: Where the next write of a descriptor begins, and whether it appends.
    places: dict[int, int] = {}
    known: set[str] = set()
    for name, arguments, returned in _calls(trace):
        if returned < 0:
            continue
        paths, numbers, texts = _read(arguments)
        if name in ("open", "openat", "creat"):
            path = _absolute(paths, texts)
            assert "O_APPEND" not in arguments or not path.startswith(inside)
            places[returned] = 0
            if path.startswith(inside) and "O_DIRECTORY" not in arguments:
                if ("O_CREAT" in arguments or name == "creat") and path not in known:
                    known.add(path)
                    yield Operation("create", path)
                elif "O_TRUNC" in arguments:
                    yield Operation("truncate", path, 0)
            continue
        if name in ("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat"):
            path = _absolute(paths, texts)
            if path.startswith(inside) or path == folder:
                folders = name.startswith("mkdir") or name == "rmdir" or "AT_REMOVEDIR" in arguments
                kind = "mkdir" if name.startswith("mkdir") else "rmdir" if folders else "unlink"
                known.discard(path)
                yield Operation(kind, path)
            continue
        if name in ("rename", "renameat", "renameat2", "link", "linkat"):
            here, there = _both(paths, texts)
            if here.startswith(inside) or there.startswith(inside):
                assert name.startswith("rename"), f"{name} is not modelled"
                known.discard(here)
                known.add(there)
                yield Operation("rename", here, to=there)
            continue
        path = paths[-1 if name == "copy_file_range" else 0][1]
        descriptor = int(paths[0][0] or -1)
        if name == "close":
            places.pop(descriptor, None)
        elif name == "lseek":
            places[descriptor] = returned
        elif not path.startswith(inside) and path != folder:
            continue
        elif name in ("fsync", "fdatasync"):
            yield Operation("sync", path)
        elif name in ("write", "writev"):
            data = b"".join(texts)
            assert len(data) == returned, f"{name} of {path} was not recorded whole"
            offset = places.get(descriptor, 0)
            places[descriptor] = offset + returned
            yield Operation("write", path, offset, data)
        elif name == "pwrite64":
            assert len(texts[0]) == returned
            yield Operation("write", path, numbers[-1], texts[0])
        elif name in ("ftruncate", "truncate"):
            yield Operation("truncate", path, numbers[-1])
        elif name == "fallocate":
            continue
        else:
            # The workloads see to it that files are copied by writes.
            raise AssertionError(f"{name} of {path} is not modelled")


def _calls(trace: Path) -> Iterator[tuple[str, str, int]]:
    """The name, the arguments and the result of each call, in the order in which they end."""
    begun: dict[str, str] = {}
    with trace.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            match = _LINE.match(line.rstrip("\n"))
            if match is None:
                continue
            process, resumed, rest = match.groups()
            if resumed is not None:
                rest = begun.pop(process) + rest
            if rest.endswith("<unfinished ...>"):
                begun[process] = rest.removesuffix("<unfinished ...>").rstrip()
                continue
            name, opened, tail = rest.partition("(")
            ended = _RETURNS.match(tail)
            if opened and ended is not None:
                yield name, ended[1], int(ended[2])


def _read(arguments: str) -> tuple[list[tuple[str, str]], list[int], list[bytes]]:
    """The files, the numbers and the texts among the arguments of a call."""
    texts = []
    for match in _TEXT.finditer(arguments):
        assert not match[2], "a text was cut"
        texts.append(bytes.fromhex(match[1].replace("\\x", "")))
    rest = _TEXT.sub("", arguments)
    paths = [(fd or "", _path(path)) for fd, path in _FILE.findall(rest)]
    numbers = [int(one) for one in re.findall(r"(?<![\w<])-?\d+(?![\w<>])", _FILE.sub("", rest))]
    return paths, numbers, texts


def _path(recorded: str) -> str:
    if "\\x" not in recorded:
        return recorded
    return bytes.fromhex(recorded.replace("\\x", "")).decode()


def _absolute(paths: list[tuple[str, str]], texts: list[bytes]) -> str:
    path = texts[0].decode()
    return os.path.normpath(os.path.join(paths[0][1], path) if paths else path)


def _both(paths: list[tuple[str, str]], texts: list[bytes]) -> tuple[str, str]:
    here, there = (one.decode() for one in texts)
    if not paths:
        return os.path.normpath(here), os.path.normpath(there)
    return tuple(  # type: ignore[return-value]
        os.path.normpath(os.path.join(paths[min(at, len(paths) - 1)][1], one))
        for at, one in enumerate((here, there))
    )
