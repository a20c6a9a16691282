"""What keeps a store in order: side tasks and their leader, the check of all invariants, backups.

May import `verbs` and all below. Must not wait for messages. Threads that outlast a
call are in `tasks`.
"""
