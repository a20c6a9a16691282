"""Backup and restore: the tables of a catalog as Arrow files, and copies of its segments."""
