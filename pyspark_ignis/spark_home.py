"""A home for Spark in which its Python processes find PySpark with its bytecode."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

#: Where Spark's Python processes look for PySpark, in Spark's home.
_ARCHIVE = "python/lib/pyspark.zip"


def home_with_bytecode(package: Path, version: str, cache: Path) -> Path | None:
    """
    Make a folder that can be ``SPARK_HOME``, with links to an installed PySpark.

    Spark's Python processes import PySpark from an archive in Spark's home, which has no bytecode.
    Python does not keep the bytecode of modules in archives, so each process compiles them again.
    In this folder, a folder has the archive's name and place, and a link to the installed package,
    whose bytecode ``pip`` has written.

    Args:
        package: The folder of the package ``pyspark``.
        version: The version of PySpark.
        cache: The folder in which the new folder is made.

    Returns:
        The folder, or None if Spark's home is not the package itself, or links cannot be made.
    """
    archive = package / _ARCHIVE
    if not archive.is_file() or (package / "spark-distribution").exists():
        return None
    digest = hashlib.sha256(os.fsencode(package)).hexdigest()[:12]
    home = cache / f"spark-{version}-{digest}"
    try:
        (home / _ARCHIVE).mkdir(parents=True, exist_ok=True)
        _link(home / _ARCHIVE / "pyspark", package)
        for each in archive.parent.iterdir():
            _link(home / "python/lib" / each.name, each)
        for each in package.iterdir():
            _link(home / each.name, each)
    except OSError:
        return None
    return home


def _link(place: Path, target: Path) -> None:
    """Make a link, unless the place is taken: another process may make the same folder."""
    with contextlib.suppress(FileExistsError):
        place.symlink_to(target)
