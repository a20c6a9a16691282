"""The catalog: a SQL database that records which consumer owns which message.

May import `segments`, `handling`, `policies` and what is below. Must not decide which messages a
verb takes. No other room builds SQL: others pass on transactions, and values such as conditions.

To build a statement takes several times as long as SQLite needs to run it. So statements are
constants, whose expressions each database compiles in its own way (`databases/expressions.py`), and
those that depend on a value of the call come from functions with an `lru_cache`.
"""
