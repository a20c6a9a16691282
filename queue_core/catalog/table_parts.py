"""What the declarations of tables share."""

from sqlalchemy import BigInteger, Column, Integer, MetaData

from queue_core.catalog import seals

metadata = MetaData()


def seal() -> Column[int]:
    """A checksum of the row, which each INSERT computes. New columns of such a table go last."""
    return Column("seal", BigInteger, default=seals.of_insert)


# SQLite numbers rows by itself only in a column of exactly the type INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")
