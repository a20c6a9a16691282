"""The tables of what is recorded beside messages: batches, failures, tasks, jobs, acts, figures."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text

from queue_core.catalog.table_parts import Id, metadata, seal

#: The last batch that each streaming query has published to each queue.
publications = Table(
    "publications",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    #: The id of the query in its checkpoint.
    Column("query_id", String(200), primary_key=True),
    #: The number of the batch. Of a batch with this number, nothing is loaded again.
    Column("batch_id", BigInteger, nullable=False),
    #: When the batch was published.
    Column("published_at", BigInteger, nullable=False),
    #: The facts by which the batch is recognised, as JSON.
    Column("content", Text),
    seal(),
)

#: Why messages were sidelined: one row per settlement, with an Arrow table of its messages.
failures = Table(
    "failures",
    metadata,
    #: Counted from 1.
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    #: When the messages failed.
    Column("failed_at", BigInteger, nullable=False),
    #: The name of the consumer that held them; null: no consumer did.
    Column("consumer", String(200)),
    #: The message ids, kinds, reasons and attempts, as an IPC stream.
    Column("arrow", LargeBinary, nullable=False),
    seal(),
    Index("failures_of_queue", "queue_id", "failed_at"),
)

#: The traces of failures: one for each queue, kind and fingerprint.
traces = Table(
    "traces",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    #: The kind of the failures.
    Column("kind", String(32), primary_key=True),
    #: The first line of their reasons, with ``*`` for values; empty if they have none.
    Column("fingerprint", String(300), primary_key=True),
    #: The message of this failure.
    Column("message_id", BigInteger, nullable=False),
    #: When it failed. An hour later, a newer failure takes its place.
    Column("failed_at", BigInteger, nullable=False),
    #: The end of the trace of its exception.
    Column("trace", Text, nullable=False),
    seal(),
)

#: The log of side tasks: one row per transaction that moved something, with an Arrow table.
task_log = Table(
    "task_log",
    metadata,
    #: The number of the report. Queries that follow side tasks remember the last one.
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    #: The name of the side task.
    Column("task", String(32), nullable=False),
    #: When its transaction was done.
    Column("done_at", BigInteger, nullable=False),
    #: How many messages were moved, by shard, from where and to where, as an IPC stream.
    Column("arrow", LargeBinary, nullable=False),
    #: The row of `task_runs` that did it, in a task of Spark; null: a process did it by itself.
    Column("run_id", BigInteger),
    seal(),
    Index("task_log_of_task", "task", "id"),
    Index("task_log_of_run", "run_id"),
    sqlite_autoincrement=True,
)

#: When each side task of each queue last began, so that one of many processes runs it.
schedule = Table(
    "schedule",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    #: The name of the side task.
    Column("task", String(32), primary_key=True),
    #: When it last began.
    Column("begun_at", BigInteger, nullable=False),
    #: When it is due again.
    Column("due_at", BigInteger, nullable=False),
)

#: What streams of side tasks have claimed: one row per share of a task, for one task of Spark.
task_runs = Table(
    "task_runs",
    metadata,
    #: The number of the run.
    Column("id", Id, primary_key=True, autoincrement=True),
    #: The name of the stream, which its checkpoint has.
    Column("stream", String(100), nullable=False),
    #: The micro-batch of the stream, counted from 1.
    Column("round", BigInteger, nullable=False),
    #: The claimed job of the schedule: 0 for a task of the store, or of the leader.
    Column("queue_id", BigInteger, nullable=False),
    #: The name of the side task; `retry`: messages of the queue whose time has come.
    Column("task", String(32), nullable=False),
    #: The queue in which it works; 0: the store.
    Column("target_id", BigInteger, nullable=False),
    #: Which share of the work it does, counted from 0.
    Column("share", Integer, nullable=False),
    #: Into how many shares the work is divided.
    Column("shares", Integer, nullable=False),
    #: Until when nobody else claims the job. Working tasks of Spark put it off.
    Column("held_until", BigInteger, nullable=False),
    #: When it was done, or taken over by others; null: not yet.
    Column("done_at", BigInteger),
    #: The error that ended it: its class and its text.
    Column("error", Text),
    Index("task_runs_of_stream", "stream", "round"),
    Index("task_runs_of_job", "queue_id", "task", "done_at"),
    sqlite_autoincrement=True,
)

#: Shovels that any process continues: to main, or to another queue, at a rate.
jobs = Table(
    "jobs",
    metadata,
    #: A short random name.
    Column("id", String(16), primary_key=True),
    Column("queue_id", BigInteger, nullable=False),
    #: The queue to which messages go; null: back to main.
    Column("target_id", BigInteger),
    #: Only messages that meet it are moved; null: all.
    Column("selector", Text),
    #: Only messages with these ids, a bitmap by segment, as JSON with base64; null: all.
    Column("ids", Text),
    #: Messages a second, as a decimal number.
    Column("rate", String(40)),
    #: The most messages.
    Column("most", BigInteger),
    #: Whether dead messages are moved too.
    Column("force", Boolean, nullable=False),
    #: The person or the process that started it.
    Column("who", String(200), nullable=False),
    #: The load pointers of the sideline's shards when it began, as JSON: later messages stay.
    Column("pointers", Text, nullable=False),
    #: How many messages there were for it then.
    Column("total", BigInteger, nullable=False),
    #: When it began.
    Column("begun_at", BigInteger, nullable=False),
    #: ``waiting``, ``running``, ``done``, ``cancelled`` or ``failed``.
    Column("state", String(16), nullable=False),
    #: How many messages it has moved.
    Column("moved", BigInteger, nullable=False),
    #: When its next step is due; null: no process has begun it. Another one continues a late job.
    Column("due_at", BigInteger),
    #: When it ended; null while it has not.
    Column("ended_at", BigInteger),
    #: Why it failed, or does not move now.
    Column("error", Text),
    seal(),
)

#: What persons did by hand: with the console, the command line, or Python. Kept for 90 days.
acts = Table(
    "acts",
    metadata,
    #: A random name.
    Column("id", String(16), primary_key=True),
    #: The name of the queue, which may be dropped since; null: it concerns the store.
    Column("queue", String(128)),
    #: What was done, such as ``pause``.
    Column("verb", String(32), nullable=False),
    #: The user of the process, with sudo ``carol as root``, or whoever logged in to the console.
    Column("who", String(200), nullable=False),
    #: The machine on which the process ran.
    Column("host", String(200), nullable=False),
    #: ``python``, ``command line`` or ``console``.
    Column("by", String(16), nullable=False),
    #: The condition by which messages were chosen.
    Column("selector", Text),
    #: The other arguments, as JSON.
    Column("chosen", Text, nullable=False),
    #: How many messages it has changed so far; null: it changes none.
    Column("messages", BigInteger),
    #: When its first transaction was.
    Column("begun_at", BigInteger, nullable=False),
    #: When it ended; null while it goes on, or if its process ended before.
    Column("ended_at", BigInteger),
    #: The error that ended it.
    Column("error", Text),
    seal(),
    Index("acts_in_order", "begun_at"),
)

#: Circuit breakers that have opened, or were turned by hand: one row per breaker.
breakers = Table(
    "breakers",
    metadata,
    #: The name that users give it.
    Column("name", String(200), primary_key=True),
    #: ``closed``, ``open`` or ``probing``.
    Column("state", String(8), nullable=False),
    #: Whether a person has opened or closed it.
    Column("forced", Boolean, nullable=False),
    #: Since when it has this state.
    Column("since_at", BigInteger, nullable=False),
    #: When the next probe is due, or the present one counts as abandoned.
    Column("until_at", BigInteger),
    #: Microseconds before the next probe.
    Column("pause", BigInteger, nullable=False),
    #: How often it has opened.
    Column("opened", BigInteger, nullable=False),
    #: The consumer that changed it last; null for a person.
    Column("consumer", String(200)),
    #: When it opened, whatever its probes have shown since; null while it is closed.
    Column("opened_at", BigInteger),
)

#: The figures of each queue at one moment, or the highest and the sums of a longer time.
samples = Table(
    "samples",
    metadata,
    #: The seconds that the row stands for.
    Column("seconds", Integer, primary_key=True, autoincrement=False),
    #: When the newest of its figures were read.
    Column("taken_at", BigInteger, primary_key=True, autoincrement=False),
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    #: Messages that waited in main.
    Column("waiting", BigInteger),
    #: The age of the oldest of them, in microseconds.
    Column("oldest_age", BigInteger),
    #: Since the one that waited longest came into main, in microseconds.
    Column("longest_wait", BigInteger),
    #: Messages that were fired and not settled.
    Column("in_flight", BigInteger),
    #: Messages that waited in the sideline.
    Column("sidelined", BigInteger),
    #: Of these, messages with a time to return.
    Column("retrying", BigInteger),
    #: Of these, dead messages.
    Column("dead", BigInteger),
    #: Microseconds in which the following numbers of messages were counted; null: unknown.
    Column("elapsed", BigInteger),
    #: Messages that were loaded in that time, without those that returned.
    Column("new_loaded", BigInteger),
    #: Messages that returned to main from the sideline.
    Column("new_returned", BigInteger),
    #: Messages that were fired.
    Column("new_fired", BigInteger),
    #: Messages that were deleted.
    Column("new_deleted", BigInteger),
    #: Messages that were sidelined.
    Column("new_sidelined", BigInteger),
    #: The counters of main, from which the next sample counts; null in rows of a longer time.
    Column("all_loaded", BigInteger),
    #: As `all_loaded`, of messages that returned.
    Column("all_returned", BigInteger),
    #: As `all_loaded`, of firings.
    Column("all_fired", BigInteger),
    #: As `all_loaded`, of deletions.
    Column("all_deleted", BigInteger),
    #: As `all_loaded`, of sidelined messages.
    Column("all_sidelined", BigInteger),
    #: Microseconds within which half of the messages of that time were fired, after they had come
    #: into main; null: none was.
    Column("waiting_p50", BigInteger),
    #: The same of 99 of 100 messages.
    Column("waiting_p99", BigInteger),
    #: Microseconds within which the handler was done with half of the messages.
    Column("handling_p50", BigInteger),
    #: The same of 99 of 100 messages.
    Column("handling_p99", BigInteger),
    #: All these messages by bucket, of which the quantiles of longer times are computed.
    Column("timings", LargeBinary),
    Index("samples_of_queue", "queue_id", "seconds", "taken_at"),
    info={"by_key": True},
)

#: What happened to the messages of each queue since its creation, by a label.
tallies = Table(
    "tallies",
    metadata,
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    #: ``failures``: messages that failed; ``waiting``: how long messages waited in main;
    #: ``handling``: how long handlers took.
    Column("name", String(16), primary_key=True),
    #: The kind of the failure, nothing, or the outcome.
    Column("label", String(40), primary_key=True),
    #: Of failures: a shard of their transaction, so that those of other shards do not wait; or 0.
    Column("shard", Integer, primary_key=True, autoincrement=False),
    #: How many messages there were, or all their microseconds.
    Column("total", BigInteger, nullable=False),
    #: Of times: the messages by bucket (`queue_core.values.histogram`), as int64.
    Column("counts", LargeBinary),
    #: The same at the last sample.
    Column("sampled", LargeBinary),
)
