"""Capacity: the bounds of a queue, and what happens when a load exceeds them."""
