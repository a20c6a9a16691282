"""Download peers into a folder of the user's cache; nothing is installed, and no root is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.peer import Missing

MAVEN = "https://repo1.maven.org/maven2"
_HOUR = 3600


def cache() -> Path:
    """Return the folder of all downloads: ``IGNIS_BENCH_CACHE``, or one in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("IGNIS_BENCH_CACHE") or Path(base) / "ignis-bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(what: str, command: Sequence[str | Path], folder: Path) -> None:
    """Run a command that downloads *what*; raises `Missing` with its last line."""
    print(f"getting {what} …", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            [str(each) for each in command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_HOUR,
            check=False,
        )
    except FileNotFoundError as error:
        raise Missing(f"{what}: no command {error.filename}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Missing(f"{what}: {said[-1][:160]}")


def packages(what: str, *names: str) -> Path:
    """Return a folder with Debian packages unpacked into it; raises `Missing`."""
    root = cache() / what
    if (root / "complete").exists():
        return root
    for command in ("apt-get", "dpkg"):
        if shutil.which(command) is None:
            raise Missing(f"{what}: not on the PATH, and there is no {command} to get it with")
    debs = root / "debs"
    shutil.rmtree(root, ignore_errors=True)
    debs.mkdir(parents=True)
    run(f"{what} from Debian", ["apt-get", "download", *names], debs)
    for deb in sorted(debs.glob("*.deb")):
        run(f"{deb.name}: unpacking", ["dpkg", "-x", deb, root], root)
    (root / "complete").touch()
    return root


def libraries(root: Path) -> dict[str, str]:
    """Return the environment in which programs of *root* find its shared libraries."""
    folders = [str(path) for path in root.glob("usr/lib/*-linux-gnu")]
    known = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": ":".join([*folders, *([known] if known else [])])}


def wheels(*names: str) -> None:
    """Make Python packages importable, from a folder of their own; raises `Missing`."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache() / f"python-{version}" / "-".join(names)
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target"]
        run(f"{', '.join(names)} from PyPI", [*command, folder, *names], folder)
        (folder / "complete").touch()
    if str(folder) not in sys.path:
        # After all others: what is installed already stays what it is.
        sys.path.append(str(folder))


def jars(what: str, java: str, ivy: str, *coordinates: str) -> Path:
    """Return a folder with the jars of ``group:name:version`` and all they need."""
    folder = cache() / what
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for coordinate in coordinates:
        command = [java, "-cp", ivy, "org.apache.ivy.Main", "-cache", cache() / "ivy"]
        command += ["-confs", "default", "-dependency", *coordinate.split(":")]
        command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        run(f"{coordinate} from Maven Central", command, folder)
    (folder / "complete").touch()
    return folder


def jar(what: str, coordinate: str) -> Path:
    """Return one jar of Maven Central, without what it needs; raises `Missing`."""
    import urllib.error
    import urllib.request

    group, name, version = coordinate.split(":")
    path = cache() / what / f"{name}-{version}.jar"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    url = f"{MAVEN}/{group.replace('.', '/')}/{name}/{version}/{path.name}"
    print(f"getting {coordinate} …", file=sys.stderr, flush=True)
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            content = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise Missing(f"{coordinate}: {error}") from error
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.rename(path)
    return path
