"""The catalog: a SQL database that records who owns which message."""
