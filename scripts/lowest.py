"""Print the lowest versions that the project declares, as constraints for pip: `make lowest`.

Python: 3.11 or later. The libraries of the tests keep their newest versions.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
#: Extras for users; the others are for the project's own work.
EXTRAS = ("spark", "cli", "postgres", "zookeeper", "console", "metrics")


def constraints() -> Iterator[str]:
    """Yield each declared library with its lower bound as the only version."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    declared = list(project["dependencies"])
    for extra in EXTRAS:
        declared += project["optional-dependencies"][extra]
    for text in declared:
        each = Requirement(text)
        (lowest,) = (bound.version for bound in each.specifier if bound.operator == ">=")
        yield f"{each.name}=={lowest}"


if __name__ == "__main__":
    print("\n".join(constraints()))
