"""The catalog: a SQL database that records which consumer owns which message.

May import `segments`, `handling`, `policies` and what is below. Must not decide which messages a
verb takes. No other room builds SQL: it passes on a transaction, and values such as conditions.

Statements in constants, and those of functions with an `lru_cache`, are built once: to build one
takes several times as long as SQLite needs to run it.
"""
