"""Book transfers between accounts, each exactly once.

    python examples/ledger.py /tmp/ledger

The accounts are in the database of the catalog, so one transaction moves the money and ends the
message. If the process is killed, run it again: it continues. A transfer that would overdraw an
account changes nothing, and waits in the sideline.
"""

import sys

import pyarrow as pa
import sqlalchemy as sa

from queue_core import ConsumerPool, Store

TRANSFER = pa.schema(
    [("number", pa.int64()), ("payer", pa.string()), ("payee", pa.string()), ("cents", pa.int64())]
)
#: An account must not be overdrawn, and the database sees to it.
ACCOUNTS = """CREATE TABLE IF NOT EXISTS accounts
    (owner TEXT PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0))"""
OPEN = "INSERT INTO accounts VALUES (:owner, :cents) ON CONFLICT DO NOTHING"
MOVE = "UPDATE accounts SET cents = cents + :cents WHERE owner = :owner"


def transfer(message: dict, connection: sa.Connection) -> bool:
    """Move the money of one transfer; an exception rolls it back."""
    for owner, cents in (
        (message["payee"], message["cents"]),
        (message["payer"], -message["cents"]),
    ):
        connection.execute(sa.text(MOVE), {"owner": owner, "cents": cents})
    return True


def main(path: str) -> dict[str, int]:
    """Load ten transfers and book them; return the balances."""
    with Store.open(path) as store:
        # The transfers of one payer stay in order.
        queue = store.create_queue(
            "transfers",
            TRANSFER,
            key="payer",
            exist_ok=True,
            dedup=["number"],
            dedup_window="30d",
            retry=None,
        )
        database = sa.create_engine(store.catalog.url)
        with database.begin() as connection:
            connection.execute(sa.text(ACCOUNTS))
            for owner in ("ada", "bob"):
                connection.execute(sa.text(OPEN), {"owner": owner, "cents": 500})
        queue.load(
            [{"number": n, "payer": "ada", "payee": "bob", "cents": 100} for n in range(7)]
            + [{"number": n, "payer": "bob", "payee": "ada", "cents": 10} for n in range(7, 10)]
        )
        # By its name, it gets back what it held when it was killed.
        pool = ConsumerPool(
            store, "transfers", transfer, name="ledger", transactional=True, tasks=[]
        )
        with pool:
            pool.drain()
        with database.connect() as connection:
            rows = connection.execute(sa.text("SELECT owner, cents FROM accounts"))
            return {row.owner: row.cents for row in rows}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python examples/ledger.py FOLDER")
    print(main(sys.argv[1]))
