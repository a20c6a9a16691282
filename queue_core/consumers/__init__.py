"""Consumers of a queue in one process: who is notified, who waits and who goes first.

Pure Python: this package knows neither the catalog nor messages, and imports nothing of the rest.
Modules, lowest first: `trace`, `entries`, `lists`, `manager`, `consumer`.

Source: Qpid Broker-J, "Consumer-Queue Interactions".
"""
