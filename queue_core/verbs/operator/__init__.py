"""Handle messages by hand: choose them by id or by selector, and move them between queues.

May import other verbs and what is below. Must not ask a person: the faces do.
"""
