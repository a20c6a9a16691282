"""Write llms.txt: the pages, each with its first sentence, for programs that read."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.site_pages import title

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "llms.txt"

_HEAD = """# ignis

> A message queue inside Spark Structured Streaming, without a broker. Messages are Arrow files in a
> folder or a bucket, a SQL database records which consumer owns which message, and Spark or plain
> Python does the work. From queue to queue, each message arrives exactly once.

Import public names from `queue_core`, `queue_core.testing` and `pyspark_ignis` alone. In Spark, use
the format `ignis`. Every example in these pages runs in the tests.
"""
#: The sections, each with its pages.
SECTIONS = {
    "Start": (
        "README.md",
        "docs/tutorial.md",
        "docs/guide.md",
        "docs/words.md",
        "docs/troubleshooting.md",
    ),
    "How to": ("docs/how-to/*.md", "docs/coming-from.md", "docs/comparison.md"),
    "Reference": (
        "docs/api.md",
        "docs/api/*.md",
        "docs/options.md",
        "docs/settings.md",
        "docs/selectors.md",
        "docs/policies.md",
        "docs/consumers.md",
        "docs/cli.md",
        "docs/catalog.md",
    ),
    "Operate": ("docs/operations.md", "docs/monitoring.md", "docs/console.md", "SECURITY.md"),
    "Optional": ("docs/*.md", "CONTRIBUTING.md", "CHANGELOG.md"),
}


def page() -> str:
    """Return the whole file."""
    parts, shown = [_HEAD], set()
    for section, patterns in SECTIONS.items():
        parts.append(f"## {section}\n")
        for pattern in patterns:
            for file in sorted(ROOT.glob(pattern)):
                if file not in shown:
                    shown.add(file)
                    parts.append(_line(file))
        parts.append("")
    return "\n".join(parts)


def _line(file: Path) -> str:
    text = file.read_text()
    return f"- [{title(text)}]({file.relative_to(ROOT)}): {_first_sentence(text)}"


def _first_sentence(text: str) -> str:
    """Return the first sentence after the heading, without links."""
    paragraphs = re.split(r"\n\s*\n", text.partition("\n")[2].strip())
    prose = next((each for each in paragraphs if each[0].isalpha()), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.])\s", plain)[0]
