"""Pages of a long list."""

from math import ceil


def within(page: int, rows: int, per_page: int) -> tuple[int, int]:
    """Return the number of a page that exists, and how many pages the rows fill."""
    pages = max(ceil(rows / per_page), 1)
    return min(page, pages), pages
