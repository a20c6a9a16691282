"""Policies of smart-message queues: how new messages and queued ones of their key interact.

Herzner's rule: each new message, in order of loading, meets the queued messages of its key, the
newest first. The first answer other than *don't care* decides about both; if there is none, the new
message is queued. A policy gives the answers. The built-in policies (`builtin`) are worked out for
all messages at once, and a user's own check (`checks`) round by round.

    text -> `parsing` -> `builtin` -> `PolicyInput` -> `PolicyResult`

Nothing here knows slices or catalogs.
"""
