"""Consumers of a queue in one process: which are notified, which wait and which go first.

Pure Python: this package knows neither the catalog nor messages, and imports nothing of the rest.
Modules, lowest first: `trace`, `entries`, `lists`, `manager`, `consumer`.

Source: Qpid Broker-J, "Consumer-Queue Interactions".
"""
