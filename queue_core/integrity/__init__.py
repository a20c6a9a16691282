"""Whether the catalog, the storage and the clock are the ones that they should be."""
