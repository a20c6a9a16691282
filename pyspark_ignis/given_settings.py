"""The settings of Spark that a user has given, before Spark runs."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: A line of a file of properties: ``name value``, ``name=value`` or ``name: value``.
_PROPERTY = re.compile(r"^\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*$", re.MULTILINE)


def given_settings(
    options: Mapping[str, object], environment: Mapping[str, str], home: Path
) -> dict[str, str]:
    """
    Return the settings that a session of this process would have.

    Args:
        options: The settings of the session's builder.
        environment: The variables of the process, which can name a folder with settings, and
            contain arguments for ``spark-submit``.
        home: The folder of Spark.

    Returns:
        The settings, by their names. Those of the builder come before arguments, and arguments
        before those of files, as in Spark.
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
