"""Messages as Python objects: dicts, and objects of a user's dataclass or pydantic model."""
