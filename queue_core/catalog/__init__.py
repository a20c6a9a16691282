"""The catalog: a SQL database that records which consumer owns which message.

May import `segments`, `handling`, `policies` and what is below. Must not decide which messages a
verb takes.
"""
