"""Help that knows nothing of queues: crash points, coalescing, syncing, spans, missing extras.

May import `errors`. Must not import any other room of the core.
"""
