"""Who holds messages: consumers with epochs, their tickets, interests and signs of life.

May import `values` and the rest of the catalog. Must not change slices.
"""
