"""Write requirements-dev.lock: the versions in this environment of all that the tests install.

`make lock` runs it, after the tests have passed with newer versions. `scripts/setup.sh` installs
these versions where the Python version is the same; the other Python versions of CI get the newest
ones, so that CI notices what breaks.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

LOCK = Path(__file__).parent.parent / "requirements-dev.lock"
PROJECT = "ignis-queue"


def plain(name: str) -> str:
    """Return the name of a distribution in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(project: str = PROJECT) -> dict[str, str]:
    """Return the version of each distribution that the project and its extras need."""
    versions: dict[str, str] = {}
    extras = distribution(project).metadata.get_all("Provides-Extra") or []
    waiting = [(project, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras_of = item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # an extra that is not installed here, such as `java`
            continue
        if name != project:
            versions[name] = found.version
        for text in found.requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(
                marker.evaluate({"extra": extra}) for extra in [*extras_of, ""]
            ):
                waiting.append((plain(requirement.name), frozenset(requirement.extras)))
    return dict(sorted(versions.items()))


def page() -> str:
    """Return the text of the file. `scripts/setup.sh` reads its first line."""
    lines = [
        f"# python {sys.version_info.major}.{sys.version_info.minor}",
        "# Written by `make lock`; see CONTRIBUTING.md.",
        *(f"{name}=={version}" for name, version in locked().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LOCK.write_text(page())
