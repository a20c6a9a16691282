"""Inspection: the state of a store for people and tools. Changes nothing.

May import `upkeep` and what is below. Must not change a store.
"""
