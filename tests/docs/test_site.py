"""The site has every page, and links lead to headings that exist."""

import os
import re
import subprocess
import tomllib
from dataclasses import fields
from types import SimpleNamespace

import pytest
import yaml

from queue_core.values.settings import QueueSettings
from scripts import llms_page, site_pages
from tests.tree import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
#: Pages that the site makes, and where those outside of docs/ are.
MADE = {"index.md", "notebooks.md", "decisions/index.md", "how-to/index.md", *site_pages.OUTSIDE}
#: Pages of the root for programs, and not for readers of the site.
NOT_THERE = {"AGENTS.md", "README.md"}


def navigation() -> list[str]:
    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        inner = node.values() if isinstance(node, dict) else node
        return [leaf for each in inner for leaf in leaves(each)]

    return leaves(yaml.safe_load(ROOT.joinpath("mkdocs.yml").read_text())["nav"])


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as Markdown on the site and on GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    named = set(re.findall(r'<a id="([\w-]+)"></a>', prose))
    return named | {
        re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", each.lower()).strip()) for each in found
    }


def test_the_navigation_has_every_page_once():
    there = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    decisions = {page for page in there if page.startswith("decisions/0")}

    listed = navigation()

    assert len(listed) == len(set(listed))
    assert set(listed) == (there - decisions) | MADE
    assert {page.name for page in ROOT.glob("*.md")} == {*site_pages.OUTSIDE} | NOT_THERE


def test_the_index_by_task_has_every_page():
    index = ROOT / "docs/pages.md"
    linked = {
        index.parent.joinpath(link).resolve()
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", index.read_text())
    }
    pages = {page for page in PAGES if not {"decisions", "api"} & {*page.parts} and page != index}

    assert pages - linked == {ROOT / "AGENTS.md"}
    assert {*ROOT.glob("notebooks/*.ipynb")} <= linked


def test_each_setting_has_an_anchor():
    found = anchors(ROOT.joinpath("docs/settings.md").read_text())

    assert {each.name for each in fields(QueueSettings)} <= found


def test_links_lead_to_headings_that_exist():
    missing = []
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text()):
            target = page.parent.joinpath(link) if link else page
            if target.suffix == ".md" and anchor not in anchors(target.read_text()):
                missing.append(f"{page}: {link}#{anchor}")

    assert missing == []


def test_links_are_moved_to_their_places_on_the_site():
    text = "[a](docs/guide.md#limits) [b](SECURITY.md) [c](docs/decisions) [d](https://x.org/y)"

    assert site_pages.moved(text, "README.md") == (
        "[a](guide.md#limits) [b](SECURITY.md) [c](decisions/index.md) [d](https://x.org/y)"
    )
    assert site_pages.moved("[a](../guide.md)", "docs/how-to/x.md") == "[a](../guide.md)"
    assert site_pages.moved("[a](decisions)", "docs/architecture.md") == "[a](decisions/index.md)"


@pytest.mark.parametrize("version", [None, "0.1"])
def test_a_version_of_several_lets_readers_choose(version, monkeypatch):
    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    if version:
        monkeypatch.setenv("MIKE_DOCS_VERSION", version)  # as mike does while it builds

    config = site_pages.on_config(SimpleNamespace(extra={"generator": False}))

    chosen = {"version": {"provider": "mike", "default": "latest"}} if version else {}
    assert config.extra == {"generator": False, **chosen}


def test_the_site_is_built_with_what_its_extra_names():
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    needs = re.search(r"^SITE_NEEDS = (.+)$", ROOT.joinpath("Makefile").read_text(), re.M)

    assert re.findall(r'"([^"]+)"', needs[1]) == project["optional-dependencies"]["docs"]


def test_versions_are_published_by_tag_and_main_as_dev():
    """The shell of the workflow, with a `make` that tells its arguments."""
    workflow = yaml.safe_load(ROOT.joinpath(".github/workflows/docs.yml").read_text())
    (script,) = [
        step["run"]
        for step in workflow["jobs"]["deploy"]["steps"]
        if step.get("name") == "This version"
    ]
    shell = "git() { :; }; make() { echo $*; }; " + script
    for ref, told in (
        ("v0.1.0", "site-version PYTHON=python VERSION=0.1 ALIAS=latest"),
        ("v1.12.3", "site-version PYTHON=python VERSION=1.12 ALIAS=latest"),
        ("main", "site-version PYTHON=python VERSION=dev"),
    ):
        done = subprocess.run(
            ["bash", "-euc", shell], env={"GITHUB_REF_NAME": ref, "PATH": os.environ["PATH"]},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == told


def test_the_list_for_programs_has_every_page():
    assert llms_page.PAGE.read_text() == llms_page.page(), "run `make docs`"
    listed = {*re.findall(r"\]\(([^)]+)\)", llms_page.page())}
    pages = {str(page.relative_to(ROOT)) for page in PAGES if "decisions" not in page.parts}
    assert listed == pages - {"AGENTS.md"}
