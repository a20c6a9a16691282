"""The pages about Delta and Iceberg: a query is killed, and each message is in the table once."""

from pathlib import Path

import pytest

from tests.connectors.deaths import live_through
from tests.connectors.driver import Part

pytestmark = [pytest.mark.slow, pytest.mark.connector, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("connector", "commits", "before"),
    [
        ("delta", "orders/_delta_log/[0-9]*.json", 0),
        # The first file is the empty table.
        ("iceberg", "db/orders/metadata/v*.metadata.json", 1),
    ],
)
def test_each_message_is_in_the_table_once(tmp_path: Path, connector, commits, before):
    page, folder = f"docs/how-to/{connector}.md", str(tmp_path / "shop")
    Part(page=page, folder=folder, first=0, end=1).run()

    report = live_through(
        Part(page=page, folder=folder, first=1),
        tmp_path / "shop-checkpoints" / connector,
        lambda: max(len([*(tmp_path / "shop-tables").glob(commits)]) - before, 0),
        said=tmp_path / "stderr",
        until=3,
    )

    print(*report, sep="\n")
    assert report[-1].endswith("noted 10; written 10")
