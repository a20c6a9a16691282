"""Side tasks: the maintenance of a store.

May import `verbs` and what is below. Must not move messages: it calls verbs, which do.
"""
