"""The demo, a year of flights through a queue: ``make demo``, ``python -m pyspark_ignis.demo``."""
