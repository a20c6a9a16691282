"""The intervals of a pool, in seconds."""

#: How far pools work ahead, or delay work, to do more in one transaction: messages that are fired
#: ahead are handled, and outcomes of quick handlers are settled, within about this time.
LINGER_SECONDS = 0.05
#: The same for outcomes with rows for an output queue: a load costs more than a settlement.
LOAD_LINGER_SECONDS = 0.15
#: The time after which a consumer looks again for messages that wait until it holds nothing.
STALL_SECONDS = 0.1
#: The pause before a retry of an operation that could not reach the catalog.
RETRY_SECONDS = 1.0
#: The time for which `ConsumerPool.stop` waits for handlers by default.
STOP_SECONDS = 30.0
