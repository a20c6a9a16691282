"""The nouns of a store, as frozen values and pure functions: messages, slices, settings, options.

May import `errors`. Must not read or write anything: no catalog, no storage, no clock.
"""
