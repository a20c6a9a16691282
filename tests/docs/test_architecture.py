"""The page on the architecture: it lists the whole house, in order, and names only what exists."""

import re
import tomllib

from tests.tree import ROOT

CORE = ROOT / "queue_core"
PAGE = ROOT.joinpath("docs/architecture.md").read_text()
#: The rooms of the core, each with one line: ``selection/`` or ``queue.py``.
ROOMS = re.findall(r"^  ([\w/.]+) +\S", PAGE.partition("```text")[2].partition("```")[0], re.M)


def section(title: str) -> str:
    """Return the text under a heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def modules(text: str) -> list[str]:
    """Return the modules that a text names, such as ``verbs/load.py`` or ``ignis_sink/load.py``."""
    return re.findall(r"`([\w/]+\.py)`", text)


def exists(module: str) -> bool:
    return any(folder.joinpath(module).exists() for folder in (CORE, ROOT))


def test_each_module_on_the_page_exists():
    named = modules(PAGE)

    assert len(named) > 40
    assert [module for module in named if not exists(module)] == []


def test_each_function_on_the_page_is_in_a_module_of_its_line():
    """``name()`` in a step or a row is defined in one of the modules that it names."""
    missing = []
    for line in re.sub(r"\n   +", " ", PAGE).splitlines():
        texts = [
            folder.joinpath(module).read_text()
            for module in modules(line)
            for folder in (CORE, ROOT)
            if folder.joinpath(module).exists()
        ]
        for name in re.findall(r"`(\w+)\(\)`", line) if texts else []:
            if not any(re.search(rf"\b(def|class) {name}\b", text) for text in texts):
                missing.append((name, line))

    assert missing == []


def test_the_tree_lists_every_room_once():
    rooms = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in CORE.iterdir()
        if path.joinpath("__init__.py").exists() or path.suffix == ".py"
    }

    assert sorted(ROOMS) == sorted(rooms - {"__init__.py"})


def test_the_tree_has_the_order_of_the_layers():
    contracts = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["tool"]["importlinter"]
    core = next(each for each in contracts["contracts"] if each["name"] == "inside the core")
    layer = {
        name.strip(): number
        for number, names in enumerate(core["layers"])
        for name in re.split(r"[|:]", names)
    }
    order = [layer[re.sub(r"(/|\.py)$", "", room)] for room in ROOMS]

    assert order == sorted(order)


def test_three_ways_are_told_in_ten_steps_at_most():
    ways = re.split(r"^### ", section("Three paths"), flags=re.M)[1:]

    assert len(ways) == 3
    for way in ways:
        steps = re.findall(r"^\d+\. ", way, re.M)
        assert 3 < len(steps) <= 10, way
        assert len(modules(way)) >= len(steps), "each step names its module"
