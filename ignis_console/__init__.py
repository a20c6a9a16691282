"""The console: web pages for the person who watches queues, and acts on them.

It is started by `ignis console`, needs the extra ``console``, and imports the core alone. It has no
public names.
"""

__all__: list[str] = []
