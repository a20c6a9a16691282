"""The invariants of a store, by number, as docs/protocol.md lists them."""

#: The conditions that hold in every state of the catalog that a transaction can see.
INVARIANTS = {
    "I1": "the values of a row give its seal",
    "I2": "a slice is in a shard of a magazine of a queue",
    "I3": "a slice names at least one row, and counts its rows rightly",
    "I4": "the rows of a slice are in a segment of its queue",
    "I5": "a row of a segment is in at most one slice",
    "I6": "a place of a shard has at most one message",
    "I7": "the places of a slice are before the load pointer of its shard",
    "I8": "a ticket holds each fired slice, and no loaded one",
    "I9": "a slice was loaded when its segment was published, unless it was compacted",
    "I10": "a segment has a queue, and a schema that this queue has had",
    "I11": "a segment is either in a file or in the catalog, and its chunks cover its rows",
    "I12": "the ids of compacted messages belong to a segment",
    "I13": "a file is live exactly while a segment is in it",
    "I14": "the file of a segment exists, and is as long as its chunks need",
    "I15": "each chunk of a segment has its checksum (only with deep)",
    "I16": "each shard has its pointers and counters",
    "I17": "the messages that came into a shard are there, or were counted when they left",
    "I18": "the fired messages of a shard are in flight, came back, or were counted when they left",
    "I19": "the damaged messages of a shard are those that are set apart there",
    "I20": "no counter is negative, and no pointer is beyond the load pointer",
    "I21": "a ticket that holds messages is one that its consumer has had",
    "I22": "a ticket belongs to a consumer, and was planned wholly or not at all",
    "I23": "a consumer has acknowledged only tickets that it has had, and in a way that there is",
    "I24": (
        "no heartbeat, lease, waiter, begin of a task, state of a breaker, bucket of a limit or "
        "key is in the future"
    ),
    "I25": "an interest belongs to a consumer and to a queue",
    "I26": "publications, failures, reports and jobs belong to a queue, and can be read",
    "I27": "a queue has a name, settings and columns that can be read",
    "I28": "the storage is that of the store",
    "I29": "only messages of the sideline have a due time, which is a time",
    "I30": "a message is a suspect exactly if it was lost with its consumer",
}
