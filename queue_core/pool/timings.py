"""The intervals of a pool, in seconds."""

#: What is done ahead or later, to do more of it in one transaction, is so by about this much: the
#: messages that are fired ahead are handled, and the outcomes of quick handlers are settled, within
#: it.
LINGER_SECONDS = 0.05
#: After this, an operation is retried for which the catalog could not be reached.
RETRY_SECONDS = 1.0
#: `ConsumerPool.stop` waits for handlers for this long by default.
STOP_SECONDS = 30.0
