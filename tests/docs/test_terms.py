"""A reader of the documents behind ignis finds their terms from the README in two clicks."""

import re
from collections import deque
from pathlib import Path

import pytest

from tests.tree import ROOT

#: Terms of the documents, and the page that explains each of them.
TERMS = {
    "magazine": "README.md",
    "sideline": "README.md",
    "shovel": "README.md",
    "sweep": "README.md",
    "leader": "README.md",
    "`getIgnorableExceptions`": "docs/seeds.md",
    "`ShovelConfig.concurrency`": "docs/seeds.md",
    "`sweepDurationInMins`": "docs/seeds.md",
    "`balancerId`": "docs/seeds.md",
    "`MAX_CONSUMERS_ALLOWED`": "docs/seeds.md",
    "selectable-message queue": "README.md",
    "Rendezvous": "docs/seeds.md",
    "`request()`": "docs/seeds.md",
    "Categorisable attributes": "docs/seeds.md",
    "decision indicators": "docs/seeds.md",
    "smart-message queue": "README.md",
    "`getAndKeep()`": "docs/seeds.md",
    "`setNotifyWorkDesired`": "docs/seeds.md",
    "non-acquiring": "README.md",
    "`QueueConsumerNodeList`": "docs/seeds.md",
    "`deliverSingleMessage`": "docs/seeds.md",
    "ConsumerTarget": "docs/seeds.md",
    "QueueConsumerManager": "docs/consumers.md",
}


def links(page: Path) -> set[Path]:
    """The pages to which a page links."""
    named = re.findall(r"\]\(([^)#\s]+)", page.read_text()) if page.suffix == ".md" else []
    return {target for name in named if (target := (page.parent / name).resolve()).is_file()}


def clicks() -> dict[Path, list[Path]]:
    """The shortest way from the README to each page."""
    ways = {ROOT / "README.md": [ROOT / "README.md"]}
    pending = deque(ways)
    while pending:
        page = pending.popleft()
        for target in sorted(links(page) - ways.keys()):
            ways[target] = [*ways[page], target]
            pending.append(target)
    return ways


WAYS = clicks()


@pytest.mark.parametrize(("term", "page"), TERMS.items())
def test_a_term_is_found_in_two_clicks(term, page):
    place = ROOT / page

    assert term in place.read_text()
    assert len(WAYS[place]) - 1 <= 2


if __name__ == "__main__":
    for term, page in TERMS.items():
        way = WAYS[ROOT / page]
        print(f"{len(way) - 1}  {term}: {' > '.join(str(p.relative_to(ROOT)) for p in way)}")
