"""Whatever a user can name is on its reference page, and what is documented is there.

Seven kinds: options, settings, commands, views, metrics, public names, errors.
"""

import importlib
import inspect
import json
import re
from dataclasses import fields

import pytest
from typer.main import get_command

import ignis_sink.options
import ignis_source.options
from ignis_cli.app import app
from pyspark_ignis.side_tasks import OBSERVED
from queue_core import errors
from queue_core.catalog.format import FIGURES, SAMPLES
from queue_core.values.settings import QueueSettings
from queue_core.values.views import VIEWS
from queue_core.watching.metric import METRICS
from scripts import api_page
from tests.tree import PUBLIC_MODULES, ROOT

#: What is told to users today; the changelog and the decisions tell of the past.
PAGES = {
    page: page.read_text()
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    if page.name != "CHANGELOG.md" and "decisions" not in page.parts
}
#: Options of Spark and of its other formats, which the examples set too.
OF_OTHERS = {
    "checkpointLocation",
    "includeHeaders",
    "maxFilesPerTrigger",
    "kafka.bootstrap.servers",
    "maxOffsetsPerTrigger",
    "startingOffsets",
    "subscribe",
    "topic",
    "txnAppId",
    "txnVersion",
}
#: Errors of others that the pages name.
ERRORS_OF_OTHERS = {
    "AssertionError",
    "CancelledError",
    "FileNotFoundError",
    "NoSuchMethodError",
    "StackOverflowError",
}
#: Mistakes that docs/troubleshooting.md makes on purpose.
MISTAKES = {"maxMessagePerTrigger", "shovle"}
#: What follows the name `ignis` in prose, where it is the name of the project.
VERBS = {"and", "builds", "does", "each", "gives", "is", "uses"}


def options() -> set[str]:
    tables = (ignis_source.options.OPTIONS, ignis_sink.options.OPTIONS)
    return {option.name for table in tables for option in table}


def settings() -> set[str]:
    return {field.name for field in fields(QueueSettings)}


def commands() -> set[str]:
    return set(get_command(app).commands)


def metrics() -> set[str]:
    return {metric.prometheus + "_total" * metric.counts for metric in METRICS}


def names() -> set[str]:
    return {name for package in PUBLIC_MODULES for name in importlib.import_module(package).__all__}


def error_names() -> set[str]:
    return {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, errors.IgnisError)
    }


def text_of(pages: str) -> str:
    """The text of a page, or of all pages of a pattern."""
    return "\n".join(file.read_text() for file in sorted(ROOT.glob(f"docs/{pages}")))


def part(pages: str, heading: str) -> str:
    """The text of a page below one heading, up to the next."""
    text = text_of(pages)
    return text.partition(f"\n{heading}\n")[2].partition("\n##")[0]


def rows(page: str) -> set[str]:
    """The code at the beginning of each row of the tables of a page."""
    text = (ROOT / "docs" / page).read_text()
    return set(re.findall(r"^\| (?:<a [^>]+></a>)?`([\w.]+)` \|", text, re.MULTILINE))


def headings(pages: str, pattern: str) -> set[str]:
    """What the headings of a page name."""
    return set(re.findall(pattern, text_of(pages), re.MULTILINE))


#: Each kind, as the code has it and as its reference page has it.
KINDS = {
    "options": (options, lambda: rows("options.md")),
    "settings": (settings, lambda: rows("settings.md")),
    "commands": (commands, lambda: headings("cli.md", r"^### `ignis ([\w-]+)")),
    "views": (
        lambda: set(VIEWS),
        lambda: set(re.findall(r"^- `(\w+)`: `", part("api/*.md", "### VIEWS"), re.MULTILINE)),
    ),
    "metrics": (metrics, lambda: {row for row in rows("monitoring.md") if "ignis_" in row}),
    "names": (
        lambda: names() - error_names(),
        lambda: headings("api/*.md", r"^### (\w+)$") - {"Errors"},
    ),
    "errors": (
        error_names,
        lambda: {*headings("api/*.md", r"^- \*\*`(\w+)`\*\* \(\w+\): \S+"), "IgnisError"},
    ),
}


def test_each_public_name_is_on_one_page_and_in_the_list_of_all():
    places = {
        package: [
            name for each in api_page.PARTS if each.package == package for name in each.names()
        ]
        for package in PUBLIC_MODULES
    }
    for package, placed in places.items():
        assert sorted(placed) == sorted(importlib.import_module(package).__all__), package
    listed = re.findall(r"^\| \[`(\w+)`\]", text_of("api.md"), re.MULTILINE)
    assert listed == [name for each in api_page.PARTS for name in each.names()]


def test_the_api_is_on_pages_that_one_can_read():
    lengths = {each.name: len(each.page().splitlines()) for each in api_page.PARTS}

    assert {name: lines for name, lines in lengths.items() if lines > 1300} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_page_has_each_of_them_and_no_others(kind):
    there, told = (each() for each in KINDS[kind])

    assert there
    assert there - told == set(), f"{kind} that are not documented"
    assert told - there == set(), f"{kind} that are documented and gone"


def test_each_error_can_be_imported_and_says_what_to_do():
    core = importlib.import_module("queue_core")

    assert error_names() <= set(core.__all__)
    for name in error_names():
        assert len(inspect.getdoc(getattr(errors, name)).splitlines()) > 1, name


def found(pattern: str) -> dict[str, str]:
    """What the pages name, each with a page that does."""
    return {
        name: page.name
        for page, text in PAGES.items()
        for name in re.findall(pattern, text, re.MULTILINE)
    }


def gone(named: dict[str, str], there: set[str]) -> dict[str, str]:
    return {name: page for name, page in named.items() if name not in there}


def test_the_pages_set_no_option_that_is_gone():
    named = found(r'\.option\(\s*\\?"([\w.]+)')

    assert len(named) > 20
    assert gone(named, options() | OF_OTHERS | MISTAKES) == {}


def test_the_pages_show_no_command_that_is_gone():
    named = found(r"(?:`|^|\| |\")!?ignis (?:--?[a-z]+(?: [a-z]*[/$]\S+)? )*([a-z][\w-]+)")

    assert len(named) > 30
    assert gone(named, commands() | VERBS | MISTAKES) == {}


def test_the_pages_change_no_setting_that_is_gone():
    changed = {
        name: page.name
        for page, text in PAGES.items()
        for line in re.findall(r"ignis (?:--path \S+ )?set \w+ (.+?)(?:`|$)", text, re.MULTILINE)
        for name in re.findall(r"([a-z]\w*)=", re.sub(r"\(.*", "", line))
    }

    assert changed
    assert gone(changed, settings()) == {}


def test_the_pages_read_no_view_that_is_gone():
    named = found(r'(?:view\(\\?"|\bviews? `|"view", \\?")(\w+)')

    assert len(named) > 5
    assert gone(named, {*VIEWS, FIGURES, SAMPLES}) == {}


def test_the_pages_and_the_dashboard_name_no_metric_that_is_gone():
    packages = {path.name for path in ROOT.glob("ignis_*")}
    named = found(r"\b(ignis_[a-z_]+[a-z])\b")
    dashboard = json.dumps(json.loads((ROOT / "docs/monitoring/dashboard.json").read_text()))
    named |= dict.fromkeys(re.findall(r"\bignis_\w+", dashboard), "dashboard.json")

    assert len(named) > 20
    # Histograms have series of their own, and queries of Spark report what they observe.
    series = {f"{name}_bucket" for name in metrics()}
    assert gone(named, metrics() | series | packages | {OBSERVED}) == {}


def test_the_pages_name_no_error_that_is_gone():
    named = found(r"`((?:NoSuch|Bad|Damaged|Catalog|Storage)[A-Z]\w+|\w+Error|\w+Mismatch)`")

    assert len(named) > 15
    known = error_names() | names() | ERRORS_OF_OTHERS
    assert gone(named, known) == {}
