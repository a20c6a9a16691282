"""Policies of smart-message queues: rules for new and queued messages of one key.

Herzner's rule: each new message, in order of loading, is compared with the queued messages of its
key, the newest first. The first decision other than *don't care* applies to both messages. Without
such a decision, the new message is queued. A policy makes the decisions. The built-in policies
(`builtin`) decide for all messages at once, and a user's own check (`checks`) round by round.

    text -> `parsing` -> `builtin` -> `PolicyInput` -> `PolicyResult`

May import `selector`, `values` and `support`. Must not know slices or catalogs.
"""
