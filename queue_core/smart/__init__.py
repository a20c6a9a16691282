"""Smart loads: snapshot, decide, rewrite, validate, load; again if the snapshot is stale."""
