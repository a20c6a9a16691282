"""The page about Delta: its query is killed, and each message is in the table once."""

from pathlib import Path

import pytest

from tests.connectors.deaths import live_through
from tests.connectors.driver import Part

pytestmark = [pytest.mark.slow, pytest.mark.connector, pytest.mark.timeout(1800)]
PAGE = "docs/how-to/delta.md"


def test_each_message_is_in_the_table_once(tmp_path: Path):
    folder = tmp_path / "shop"
    Part(page=PAGE, folder=str(folder), first=0, end=1).run()
    log = tmp_path / "shop-tables/orders/_delta_log"

    report = live_through(
        Part(page=PAGE, folder=str(folder), first=1),
        tmp_path / "shop-checkpoints/delta",
        lambda: len([*log.glob("[0-9]*.json")]),
        said=tmp_path / "stderr",
        until=3,
    )

    print(*report, sep="\n")
    assert report[-1].endswith("noted 10; written 10")
