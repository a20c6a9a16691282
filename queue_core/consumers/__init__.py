"""Consumers of a queue in one process: which are notified, which wait and which go first.

Modules, lowest first: `trace`, `entries`, `lists`, `manager`, `consumer`. They are pure Python, and
import nothing of the rest. `presence` may import `catalog`. Must not read messages.

Source: Qpid Broker-J, "Consumer-Queue Interactions".
"""
