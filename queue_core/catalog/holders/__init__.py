"""Who holds messages: consumers with epochs, their tickets, interests and signs of life.

May import `values` and the catalog's database. Must not change slices.
"""
