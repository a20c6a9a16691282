"""Capacity: the bounds of a queue, and what happens when a load exceeds them.

May import `selection` and what is below. Must not load messages.
"""
