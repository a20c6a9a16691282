"""The demo, a year of flights through a queue: ``make demo``, ``python -m examples.demo``."""
