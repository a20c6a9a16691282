"""Smart loads: snapshot, decide, rewrite, validate, load; repeated if the snapshot is stale."""
