"""
The driver that is killed: runs a part of a page as a program.

    python -m tests.connectors.driver '{"page": "docs/how-to/delta.md", …}'

Takes a `Part` as JSON. Says "up" before the first of its blocks, and ends after the last.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from queue_core import Store
from tests.crash.spark.lives import Work
from tests.examples import FOLDER, blocks, execute


@dataclass(frozen=True, kw_only=True)
class Part(Work):
    """Some blocks of a page, counted from 0, in a folder of their own."""

    page: str
    folder: str
    first: int
    #: The block after the last; None for all that follow.
    end: int | None = None
    #: What the page says, and what the test has in its place, such as the address of a server.
    replace: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run the blocks; the store is there for all but the first."""
        names: dict[str, object] = {"__name__": "__main__"}
        if self.first:
            names["store"] = Store.open(self.folder)
        for code in list(blocks(self.page, "python"))[self.first : self.end]:
            for said, meant in {**self.replace, FOLDER: self.folder}.items():
                code = code.replace(said, meant)
            execute(self.page, code, names)


if __name__ == "__main__":
    print("up", flush=True)
    Part.from_json(sys.argv[1]).run()
