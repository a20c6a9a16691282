"""Handle messages by hand: choose them by id or by selector, and move them between queues."""
