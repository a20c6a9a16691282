"""Inspection: the state of a store, read for people and their tools. Changes nothing."""
