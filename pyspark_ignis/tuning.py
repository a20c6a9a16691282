"""Settings of a session with which Spark finds ignis, and its queries start and run faster."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
#: For a JVM that runs for minutes: one compiler, which is fast, and a collector without threads.
BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MAX_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: The one value with which Spark does not add up the size of an Arrow batch after each row.
UNLIMITED = str((1 << 31) - 1)
#: Settings of the Python that Spark starts.
_PYTHONS = {"spark.pyspark.python", "spark.pyspark.driver.python"}
#: Variables that give options to a JVM.
_JAVA_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def tuned(
    builder: SparkSession.Builder, *, brief: bool = False, small_rows: bool = False
) -> SparkSession.Builder:
    """
    Set what lets Spark find ignis and run its queries faster, on the builder of a session.

    With a local master, Spark's Python processes run this program's Python, in which ignis is
    installed. Otherwise Spark takes the first ``python3`` of the ``PATH``, and may not find ignis.

    What is already set stays: by the builder, in ``spark-defaults.conf``, by arguments of
    ``spark-submit`` or in the environment. A running session, an application that ``spark-submit``
    has started, and a client of Spark Connect have their settings already, so they stay as they
    are. `docs/how-to/start-faster.md` lists the settings, each with its measured effect.

    Args:
        builder: The builder of the session, with your own settings. Call `tuned` after them, and
            before ``getOrCreate``.
        brief: Whether the application ends within some minutes. The JVM then uses its fast
            compiler alone, which produces slower code, and the serial garbage collector.
        small_rows: Whether all rows that go to Python are small, of at most 6 kB. Spark then limits
            its Arrow batches only by rows, to 10,000, and does not add up the bytes of a batch
            after each row. Nothing changes if you have set either limit.

    Returns:
        The same builder.
    """
    # Not at the top: this module is imported without PySpark too, and a builder has imported it.
    import pyspark

    if "PYSPARK_GATEWAY_PORT" in os.environ or pyspark.SparkContext._gateway is not None:
        # This process has a JVM of Spark already.
        return builder
    package = Path(pyspark.__file__).parent
    options: dict[str, object] = getattr(builder, "_options", {})
    given = given_settings(options, os.environ, Path(os.environ.get("SPARK_HOME") or package))
    if given.keys() & {"spark.remote", "spark.api.mode"} or "SPARK_API_MODE" in os.environ:
        return builder
    if _is_local(given.get("spark.master", "local[*]")):
        if "PYSPARK_PYTHON" not in os.environ and not given.keys() & _PYTHONS:
            os.environ["PYSPARK_PYTHON"] = sys.executable
        if "SPARK_HOME" not in os.environ:
            home = home_with_bytecode(package, pyspark.__version__, _cache())
            if home is not None:
                os.environ["SPARK_HOME"] = str(home)
    in_environment = any("-XX:" in os.environ.get(name, "") for name in _JAVA_VARIABLES)
    if brief and not in_environment and not given.keys() & {JAVA_OPTIONS, DEFAULT_JAVA_OPTIONS}:
        builder.config(DEFAULT_JAVA_OPTIONS, BRIEF_JAVA)
    if small_rows and not given.keys() & {MAX_BATCH_BYTES, MAX_BATCH_ROWS}:
        builder.config(MAX_BATCH_BYTES, UNLIMITED)
    return builder


def _is_local(master: str) -> bool:
    """Tell whether the tasks run in the driver's process: other executors have their own home."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _cache() -> Path:
    """Return the folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ignis"


#: Where Spark's Python processes look for PySpark, in Spark's home.
_ARCHIVE = "python/lib/pyspark.zip"


def home_with_bytecode(package: Path, version: str, cache: Path) -> Path | None:
    """
    Make a folder that can be ``SPARK_HOME``, with links to an installed PySpark.

    Spark's Python processes import PySpark from an archive in Spark's home, which has no bytecode.
    Python does not keep the bytecode of modules in archives, so each process compiles them again.
    In this folder, a folder has the archive's name and place, and a link to the installed package,
    whose bytecode ``pip`` has written.

    Return it, or None if Spark's home is not the *package* itself, or links cannot be made.
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


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: A line of a file of properties: ``name value``, ``name=value`` or ``name: value``.
_PROPERTY = re.compile(r"^\s*(spark\.[^\s=:]+)[ \t=:]+(.*?)\s*$", re.MULTILINE)


def given_settings(
    options: Mapping[str, object], environment: Mapping[str, str], home: Path
) -> dict[str, str]:
    """
    Return the settings that a session of this process would have, by their names.

    Those of its builder, *options*, come before arguments for ``spark-submit``, which variables
    can contain, and arguments before those of files, as in Spark. *home*: the folder of Spark.
    """
    arguments = _arguments(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    folder = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    file = Path(arguments.properties_file or folder / "spark-defaults.conf")
    text = file.read_text(errors="replace") if file.is_file() else ""
    found: dict[str, str] = dict(_PROPERTY.findall(text))
    named = {
        "spark.master": arguments.master or environment.get("MASTER"),
        "spark.remote": arguments.remote or environment.get("SPARK_REMOTE"),
        JAVA_OPTIONS: arguments.driver_java_options,
    }
    found |= {name: value for name, value in named.items() if value is not None}
    found |= dict(each.partition("=")[::2] for each in arguments.conf)
    return found | {name: str(value) for name, value in options.items()}


def _arguments(words: str) -> argparse.Namespace:
    """Return the arguments of ``spark-submit`` that are of interest here."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--master", "--remote", "--driver-java-options", "--properties-file"):
        parser.add_argument(name)
    parser.add_argument("--conf", "-c", action="append", default=[])
    return parser.parse_known_args(shlex.split(words))[0]
