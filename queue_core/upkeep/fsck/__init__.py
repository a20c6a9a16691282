"""Check every invariant of a store: one module for each family, and the repair."""
