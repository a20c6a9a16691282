"""
Kill processes in transactions of their own, and pools with an output: ``python -m tests.kills``.

Prints what the processes did when they were killed. Ends with an error if a row of the caller and
its message ever disagree.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from queue_core import Store
from tests import servers
from tests.kills.killing import WORKS, kill, prepare


def main() -> int:
    """Kill, and print a line for each catalog and each kind of work."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="of each kind, on each catalog")
    parser.add_argument("--catalog", choices=servers.CATALOGS, action="append")
    parser.add_argument("--work", choices=sorted(WORKS), action="append")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for catalog in given.catalog or servers.CATALOGS:
        for name in given.work or sorted(WORKS):
            with (
                tempfile.TemporaryDirectory(prefix="ignis-kills-") as folder,
                servers.address_in(folder, catalog) as address,
                Store(address) as store,
            ):
                prepare(store)
                found = kill(store, name, Path(folder), given.kills, given.seed)
                doing = ", ".join(f"{n} {what}" for what, n in sorted(found.doing.items()))
                print(
                    f"{catalog}, {name}: {given.kills} kills ({doing}); {found.sold} rows with "
                    f"a message, of which {found.done} are done; all agree",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
