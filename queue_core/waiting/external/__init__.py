"""Verbs within the caller's own transaction, which the caller commits or rolls back."""
