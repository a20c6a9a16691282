"""What SQLite and PostgreSQL do differently: one class for each, which `catalog` uses.

`interface.Dialect` has the questions, and each class answers all of them, with the reasons.
`catalog/dialect.py` finds the class for a connection, and imports no other one.

May import `errors` and `catalog/tables.py`. Must not know what a verb does.
"""
