"""Messages as Python objects: dicts, and objects of a user's dataclass or pydantic model.

May import `values`. Must not call a handler.
"""
