"""The check of a store: it runs all of `catalog.checks`, and reports what they find."""
