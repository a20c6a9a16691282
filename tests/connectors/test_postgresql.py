"""The page about PostgreSQL: its query is killed, and each message is in the table once."""

from pathlib import Path

import psycopg
import pytest

from tests.connectors.deaths import live_through
from tests.connectors.driver import Part
from tests.examples import DATABASE
from tests.servers import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.connector, pytest.mark.timeout(1800)]
PAGE = "docs/how-to/postgresql.md"


def test_each_message_is_in_the_table_once(tmp_path: Path, postgres: Postgres):
    folder = tmp_path / "shop"
    with postgres.database() as url:
        address = url.replace("+psycopg", "")
        part = Part(page=PAGE, folder=str(folder), first=0, end=2, replace={DATABASE: address})
        part.run()

        def written() -> int:
            with psycopg.connect(address) as connection:
                return connection.execute("SELECT count(*) FROM ledger").fetchone()[0]

        report = live_through(
            Part(page=PAGE, folder=str(folder), first=2, replace=part.replace),
            tmp_path / "shop-checkpoints/ledger",
            written,
            said=tmp_path / "stderr",
            until=4,
        )

    print(*report, sep="\n")
    assert report[-1].endswith("noted 10; written 1001")  # the page adds one
