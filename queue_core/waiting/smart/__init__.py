"""Smart loads: snapshot, decide, rewrite, validate, load; repeated if the snapshot is stale.

May import `verbs`, `policies` and what is below. Must not decide instead of a policy.
"""
