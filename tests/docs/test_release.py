"""A version can be published: pinned actions, notes from the changelog, forms for issues."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from ignis_cli.app import app
from queue_core import __version__
from scripts import release_notes
from tests.tree import ROOT

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
RELEASE = ROOT / ".github/workflows/release.yml"
FORMS = sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"))
USES = re.compile(r"^\s*(?:- )?uses: (.+)$", re.MULTILINE)
PINNED = re.compile(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)")
CHANGELOG = """# Changelog

## 0.2.0

- A [guide](docs/guide.md#limits), and [elsewhere](https://x.org/y).

### Promises

- None.

## 0.1.0

First.

## 0.0.1
"""


def jobs(workflow: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(workflow.read_text())["jobs"])


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_each_action_is_pinned_to_a_commit_and_names_its_version(workflow):
    used = USES.findall(workflow.read_text())

    assert [each for each in used if not PINNED.fullmatch(each)] == []


def test_an_action_has_the_same_commit_everywhere():
    commits = defaultdict(set)
    for workflow in WORKFLOWS:
        for each in USES.findall(workflow.read_text()):
            name, commit, version = PINNED.fullmatch(each).groups()
            commits[name].add((commit, version))

    assert {name: found for name, found in commits.items() if len(found) > 1} == {}
    assert {"actions/checkout", "actions/attest", "pypa/gh-action-pypi-publish"} <= set(commits)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_may_only_read_unless_a_job_needs_more(workflow):
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_the_targets_and_scripts_that_a_workflow_runs_exist(workflow):
    targets = set(re.findall(r"^([\w-]+):", ROOT.joinpath("Makefile").read_text(), re.MULTILINE))
    ran = "\n".join(commands(job) for job in jobs(workflow).values())

    assert {*re.findall(r"\bmake ([a-z-]+)", ran)} <= targets
    for module in re.findall(r"python -m (scripts\.\w+)", ran):
        assert ROOT.joinpath(*module.split(".")).with_suffix(".py").exists(), module


def test_a_job_that_may_sign_runs_no_code_of_the_project():
    signing = {
        name: job
        for name, job in jobs(RELEASE).items()
        if "write" in job.get("permissions", {}).values()
    }

    assert {"attest", "publish", "page"} == set(signing)
    for name, job in signing.items():
        ran = commands(job)
        assert not re.search(r"\b(make|pip|python)\b", ran), name
        assert not any("checkout" in step.get("uses", "") for step in job["steps"]), name


def test_a_release_has_wheel_archive_list_of_parts_attestations_and_notes():
    build, attest, publish, page = (
        jobs(RELEASE)[name] for name in ("build", "attest", "publish", "page")
    )
    lists = {step["with"].get("sbom-path") for step in attest["steps"] if "attest@" in step["uses"]}

    assert "python -m build" in commands(build), "makes the wheel and the source archive"
    assert "cyclonedx_py" in commands(build)
    assert lists == {None, "release/ignis-queue.cdx.json"}, "who built it, and what is in it"
    assert publish["environment"] == "pypi"
    assert publish["needs"] == "attest"
    assert "--notes-file release/notes.md dist/* release/ignis-queue.cdx.json" in commands(page)


def test_the_notes_of_the_present_version_can_be_cut():
    """As the workflow does it, with a Python that has no library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, '.'); "
         "from scripts.release_notes import main; main()",
         "--tag", f"v{__version__}", "--address", "https://example.org/blob"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "What 0.x promises" in done.stdout
    assert "](https://example.org/blob/docs/guide.md)" in done.stdout
    assert not re.search(r"\]\((?!https?:)", done.stdout), "each link leads somewhere from anywhere"


def test_notes_are_those_of_one_version():
    assert release_notes.notes(CHANGELOG, "0.1.0") == "First."
    assert release_notes.notes(CHANGELOG, "0.2.0", "https://a.org/b").splitlines() == [
        "- A [guide](https://a.org/b/docs/guide.md#limits), and [elsewhere](https://x.org/y).",
        "",
        "### Promises",
        "",
        "- None.",
    ]


@pytest.mark.parametrize("version", ["0.0.1", "0.3.0"])
def test_a_version_without_notes_is_refused(version):
    with pytest.raises(SystemExit, match=rf"no notes of version {version}; it has: 0.2.0, 0.1.0"):
        release_notes.notes(CHANGELOG, version)


def test_a_tag_of_another_version_is_refused():
    module = '__version__ = "0.2.0"\n'

    assert release_notes.version_of("v0.2.0", module) == "0.2.0"
    for tag in ("v0.1.0", "0.2.0"):
        with pytest.raises(SystemExit, match="set __version__"):
            release_notes.version_of(tag, module)


def test_the_forms_for_issues_have_what_a_form_needs():
    assert {file.name for file in FORMS} == {"bug.yml", "config.yml", "wish.yml"}
    for file in FORMS:
        form = yaml.safe_load(file.read_text())
        if file.name == "config.yml":
            assert form == {"blank_issues_enabled": False}
            continue
        assert {"name", "description", "labels", "body"} == set(form), file.name
        asked = [each for each in form["body"] if each["type"] != "markdown"]
        assert len({each["id"] for each in asked}) == len(asked)
        for each in asked:
            assert each["type"] in {"textarea", "input", "dropdown", "checkboxes"}
            assert each["attributes"]["label"]
            if each["type"] == "dropdown":
                options = each["attributes"]["options"]
                assert len(set(options)) == len(options) > 1
        assert any(each.get("validations", {}).get("required") for each in asked), file.name


def test_the_commands_that_templates_ask_for_exist():
    text = "\n".join(file.read_text() for file in FORMS)
    asked = re.findall(r"^\s+ignis (\S+)(?: (.+))?$", text, re.MULTILINE)
    known = get_command(app).commands

    assert {name for name, _ in asked if name != "--version"} <= set(known)
    assert {"why", "fsck", "problems"} <= {name for name, _ in asked}


def test_the_pull_request_template_asks_for_what_the_rules_ask():
    text = ROOT.joinpath(".github/PULL_REQUEST_TEMPLATE.md").read_text()
    targets = set(re.findall(r"^([\w-]+):", ROOT.joinpath("Makefile").read_text(), re.MULTILINE))

    assert {*re.findall(r"`make ([a-z-]+)`", text)} <= targets
    assert {"`CHANGELOG.md`", "`make test`", "`make docs`"} <= {*re.findall(r"`[^`]+`", text)}
