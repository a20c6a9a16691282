"""What a new message does to the queued ones of its key, and they to it: smart-message queues.

The rule is Herzner's: each new message, in order of loading, meets the queued messages of its key,
the newest first; the first answer other than *don't care* decides what becomes of both, and without
one the new message is queued. A policy gives the answers. Those that are built in are worked out
for all messages at once (`builtin`), and so are a user's own, round by round (`checks`).

    text -> `parsing` -> `builtin` -> on an `Arena` -> a `Verdict`

Nothing here knows of slices or catalogs.
"""
