"""Side tasks: the maintenance of a store."""
