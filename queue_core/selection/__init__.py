"""Selection: which messages a firing takes, and in which order."""
