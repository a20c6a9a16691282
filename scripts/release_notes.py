"""Cut the notes of one version out of CHANGELOG.md.

``python -m scripts.release_notes --tag v0.1.0`` prints them. The release workflow runs it with the
standard library alone, before anything is installed.
"""

from __future__ import annotations

import argparse
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SECTION = re.compile(r"^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)[^)\s]+")


def sections(changelog: str) -> dict[str, str]:
    """Return the text under the heading of each version."""
    return {match[1]: match[2].strip() for match in _SECTION.finditer(changelog)}


def notes(changelog: str, version: str, address: str = "") -> str:
    """
    Return the notes of a version.

    Args:
        changelog: The text of CHANGELOG.md.
        version: The version, such as ``0.1.0``.
        address: Where the files of the project can be read. Links to files then lead there, since
            the page of a release is not beside them.

    Returns:
        The text under the heading of the version, without the heading.

    Raises:
        SystemExit: The changelog has no section with this version, or an empty one.
    """
    found = sections(changelog)
    if not found.get(version):
        known = ", ".join(found) or "none"
        raise SystemExit(f"CHANGELOG.md has no notes of version {version}; it has: {known}")
    if not address:
        return found[version]
    return _LINK.sub(lambda match: posixpath.join(address, match[0]), found[version])


def version_of(tag: str, module: str) -> str:
    """
    Return the version that a tag names.

    Args:
        tag: The tag, such as ``v0.1.0``.
        module: The text of the module that sets ``__version__``.

    Returns:
        The version, such as ``0.1.0``.

    Raises:
        SystemExit: The project has another version.
    """
    declared = re.search(r'^__version__ = "(.+)"$', module, re.MULTILINE)
    version = declared[1] if declared else ""
    if tag != f"v{version}":
        raise SystemExit(
            f"tag {tag} is not the version of the project, {version}: "
            "set __version__ in queue_core/__init__.py, or push the right tag"
        )
    return version


def main() -> None:
    """Print the notes of the version that the tag names."""
    options = argparse.ArgumentParser(description="Print the notes of a version.")
    options.add_argument("--tag", required=True, help="the tag of the version, such as v0.1.0")
    options.add_argument("--address", default="", help="where the project's files can be read")
    given = options.parse_args()
    version = version_of(given.tag, ROOT.joinpath("queue_core/__init__.py").read_text())
    print(notes(ROOT.joinpath("CHANGELOG.md").read_text(), version, given.address))


if __name__ == "__main__":
    main()
