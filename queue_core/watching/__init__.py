"""Inspection: the state of a store for people and tools. Changes nothing."""
