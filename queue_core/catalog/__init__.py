"""The catalog: a SQL database that records which consumer owns which message."""
