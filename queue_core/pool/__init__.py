"""`ConsumerPool`: worker threads of one process that handle messages of queues."""
