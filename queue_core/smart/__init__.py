"""Smart loads: snapshot, decide, rewrite, validate, load; and again if the snapshot is stale."""
