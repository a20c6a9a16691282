"""Who is woken, who waits, who goes first: consumers of a queue, in a process and between them.

Source: Qpid Broker-J, "Consumer-Queue Interactions".
"""
