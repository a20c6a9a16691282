"""The targets of all links exist."""

import re

from tests.tree import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
#: What the demo, the benchmarks and builds write is not of the project.
WRITTEN = {"out", "build", "dist"}
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - WRITTEN


def links(text: str) -> list[str]:
    """The pages that a page links to, anchors and other sites left out."""
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    return [link for link in found if "://" not in link]


def files(text: str) -> list[str]:
    """The files of the project that a page names in code quotes."""
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", text)
    return [name for name in named if name.split("/")[0] in FOLDERS]


def test_what_a_page_points_to_is_there():
    missing = []
    for page in PAGES:
        text = page.read_text()
        missing += [(page, link) for link in links(text) if not (page.parent / link).exists()]
        missing += [(page, name) for name in files(text) if not (ROOT / name).exists()]

    assert missing == []


def test_decisions_are_numbered_and_say_what_the_template_asks():
    pages = sorted(ROOT.glob("docs/decisions/*.md"))
    parts = re.findall(r"^\*\*(.+?)\.\*\*", pages[0].read_text(), re.MULTILINE)

    assert [int(page.name[:4]) for page in pages] == list(range(len(pages)))
    for page in pages:
        told = re.findall(r"^\*\*(.+?)\.\*\*", page.read_text(), re.MULTILINE)
        assert [part for part in parts if part not in told] == [], page.name
