"""Passwords in URLs are for servers: what people are shown goes without them."""

import re

#: A user, a password, and the @ behind it. To the last @, for a password may not have been quoted.
_CREDENTIALS = re.compile(r"(?<=://)[^/?#@]*:.*@")


def masked(url: str) -> str:
    """A URL as it may be shown: ``s3://***@bucket/prefix``."""
    return _CREDENTIALS.sub("***@", url)
