"""Expressions that each database compiles in its own way."""

from sqlalchemy import column, create_engine, delete, select, table
from sqlalchemy.dialects import postgresql

from queue_core.catalog.databases.expressions import one_of

THINGS = table("things", column("id"), column("name"))


def test_one_of_some_values_is_a_condition_like_others():
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE things (id INTEGER, name TEXT)")
        connection.exec_driver_sql("INSERT INTO things VALUES (1, 'a'), (2, 'b'), (3, NULL)")

        def ids(*where):
            return connection.scalars(select(THINGS.c.id).where(*where)).all()

        # The second time, SQLAlchemy has compiled the statement.
        for among, rest in (([1, 3], [2]), ([2], [1, 3]), ([], [1, 2, 3])):
            these = one_of(THINGS.c.id, among)
            assert ids(these) == among
            assert ids(~these) == rest
            assert ids(these | (THINGS.c.id == 2), ~(THINGS.c.name == "b")) == [
                number for number in among if number == 1
            ]
        assert ids(one_of(THINGS.c.name, ["a", "b"])) == [1, 2]
        other = THINGS.alias("other")
        of_other = select(other.c.id).where(other.c.id == THINGS.c.id, one_of(other.c.id, [2]))
        assert ids(of_other.exists()) == [2]
        connection.execute(delete(THINGS).where(one_of(THINGS.c.id, [1, 2])))
        assert ids() == [3]


def test_one_of_some_values_is_one_parameter_on_postgresql():
    for among in ([1, 2], [3]):
        condition = ~one_of(THINGS.c.id, among)
        compiled = select(THINGS.c.id).where(condition).compile(dialect=postgresql.dialect())
        assert "WHERE NOT things.id = ANY (%(param_1)s::BIGINT[])" in str(compiled)
        assert list(compiled.params.values()) == [among]
