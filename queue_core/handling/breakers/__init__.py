"""Circuit breakers: when a handler's calls fail too often, no more messages are fired for it.

`breaker` is the user's value, `windows` count the last calls, `gate` decides in one process which
messages reach the handler, and `states` has the transitions of the state that all processes share.
"""
