"""What the declarations of tables share."""

from sqlalchemy import BigInteger, Column, Integer, MetaData, text

from queue_core.catalog import seals

metadata = MetaData()


def seal() -> Column[int]:
    """A checksum of the row, which each INSERT computes. New columns of such a table go last."""
    return Column("seal", BigInteger, default=seals.of_insert)


def version() -> Column[int]:
    """
    A number that grows with each change of the row, as `seals.changing` has it.

    A server keeps all versions of a row that a transaction which is still open might read. By an
    index with this number, it finds the newest one without a look at the others.
    """
    return Column("version", BigInteger, nullable=False, server_default=text("0"))


# SQLite numbers rows by itself only in a column of exactly the type INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")
