"""What mkdocs.yml asks for besides: pages outside of docs/, lists of pages, a check of the result.

mkdocs calls the functions while it builds the site: `make site`.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
#: Pages beside README.md that are in the root of the project.
OUTSIDE = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(\]\()([^)#\s]+)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def title(text: str) -> str:
    """Return the first heading of a page."""
    found = _TITLE.search(text)
    return found[1] if found else ""


def moved(text: str, page: str) -> str:
    """
    Return a page with its links as they are on the site.

    Args:
        text: The page's Markdown.
        page: The path of the page in the project, such as ``docs/guide.md``.

    Returns:
        The same text. Links into docs/ and to files beside it lead to their places on the site.
    """
    folder = posixpath.dirname(page)
    here = posixpath.dirname(_on_site(page))

    def place(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] + posixpath.relpath(_on_site(target), here or ".")

    return _LINK.sub(place, text)


def _on_site(path: str) -> str:
    """Return the place on the site of a file of the project."""
    if path == "README.md":
        return "index.md"
    if path in ("docs/decisions", "docs/how-to"):
        return path.removeprefix("docs/") + "/index.md"
    return path.removeprefix("docs/")


def decisions() -> str:
    """Return the page that lists the decisions."""
    pages = sorted(ROOT.glob("docs/decisions/0*.md"))[1:]
    rows = [f"| {page.name[:4]} | [{title(page.read_text())}]({page.name}) |" for page in pages]
    head = [
        "# Decisions",
        "",
        "Each page has a problem, a choice, what was rejected, and the tests.",
    ]
    return "\n".join([*head, "", "| number | decision |", "|---|---|", *rows, ""])


def how_tos() -> str:
    """Return the page that lists the how-to pages."""
    pages = sorted(ROOT.glob("docs/how-to/*.md"), key=lambda page: title(page.read_text()))
    rows = [f"- [{title(page.read_text())}]({page.name})" for page in pages]
    head = ["# How to", "", "One page each, with code to copy. The tests run every page.", ""]
    return "\n".join([*head, *rows, ""])


def notebooks() -> str:
    """Return the page that lists the notebooks, which are files to download."""
    rows = []
    for file in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = json.loads(file.read_text())["cells"]
        first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        rows.append(f"- [{title(first) or file.stem}](notebooks/{file.name})")
    head = ["# Notebooks", "", "To open them: `pip install '.[demo]'`, then `jupyter lab`.", ""]
    return "\n".join([*head, *rows, ""])


def on_config(config: Any) -> Any:
    """Let readers choose a version, in a site that mike builds beside those of other versions."""
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike", "default": "latest"}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/, and the notebooks as files."""
    from mkdocs.structure.files import File

    made = {
        "decisions/index.md": decisions(),
        "how-to/index.md": how_tos(),
        "notebooks.md": notebooks(),
        "index.md": moved(ROOT.joinpath("README.md").read_text(), "README.md"),
        **{page: moved(ROOT.joinpath(page).read_text(), page) for page in OUTSIDE},
    }
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    listed = moved(ROOT.joinpath("llms.txt").read_text(), "llms.txt").replace(".md)", ".html)")
    files.append(File.generated(config, "llms.txt", content=listed.replace("README", "index")))
    for file in ROOT.glob("notebooks/*.ipynb"):
        content = file.read_text()
        files.append(File.generated(config, f"notebooks/{file.name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links of pages in docs/ lead to the lists that only the site has."""
    if page.file.generated_by:
        return markdown
    return moved(markdown, f"docs/{page.file.src_uri}")


class _Loaded(HTMLParser):
    """Collects the addresses of other sites that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            loads = name == "src" or (name == "href" and tag == "link")
            if loads and (value or "").startswith(("http:", "https:", "//")):
                self.found.append(f"{tag} {value}")


def on_post_build(config: Any) -> None:
    """Refuse a site that loads anything from other sites."""
    for page in Path(config.site_dir).rglob("*.html"):
        parser = _Loaded()
        parser.feed(page.read_text())
        if parser.found:
            raise SystemExit(f"{page}: loads from other sites: {parser.found}")
