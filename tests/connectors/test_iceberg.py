"""The page about Iceberg: its query is killed, and each message is in the table once."""

from pathlib import Path

import pytest

from tests.connectors.deaths import live_through
from tests.connectors.driver import Part

pytestmark = [pytest.mark.slow, pytest.mark.connector, pytest.mark.timeout(1800)]
PAGE = "docs/how-to/iceberg.md"


def test_each_message_is_in_the_table_once(tmp_path: Path):
    folder = tmp_path / "shop"
    Part(page=PAGE, folder=str(folder), first=0, end=1).run()
    metadata = tmp_path / "shop-tables/db/orders/metadata"

    report = live_through(
        Part(page=PAGE, folder=str(folder), first=1),
        tmp_path / "shop-checkpoints/iceberg",
        # The first file is the empty table; each commit adds one.
        lambda: max(len([*metadata.glob("v*.metadata.json")]) - 1, 0),
        said=tmp_path / "stderr",
        until=3,
    )

    print(*report, sep="\n")
    assert report[-1].endswith("noted 10; written 10")
