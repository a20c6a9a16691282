"""The meaning of a database's errors, by their codes, and by a text only where there is none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError

from queue_core.errors import (
    CatalogForbidden,
    CatalogUnavailable,
    Damaged,
    DamagedCatalog,
    IgnisError,
)

Code = int | str

#: What to do about a catalog that lacks tables.
LACKING = (
    "check its URL, and on PostgreSQL the search_path of its role and database; only if these are "
    "as they were, restore it from a backup"
)


@dataclass(frozen=True, slots=True)
class ErrorCodes:
    """The codes of one database, by meaning."""

    #: Returns the code of an error, if it has one.
    code_of: Callable[[DBAPIError], Code | None]
    #: The same transaction may succeed when it is tried again.
    retry: Collection[Code]
    damaged: Collection[Code]
    #: A statement named a table or a column that the catalog does not have.
    no_name: Collection[Code]
    #: The role lacks a right.
    forbidden: Collection[Code] = ()
    #: The transaction may not write.
    read_only: Collection[Code] = ()
    #: The problem of the catalog and its remedy, by code.
    reasons: Mapping[Code, str] = field(default_factory=dict)
    #: Returns whether a commit with this error may have succeeded.
    is_unsure: Callable[[DBAPIError], bool] = lambda error: False
    #: Returns whether a transaction certainly failed because a disk of this machine is full.
    has_no_room: Callable[[DBAPIError], bool] = lambda error: False
    #: Returns whether the server has no connection left; also for an error of the driver.
    is_crowded: Callable[[BaseException], bool] = lambda error: False

    def can_retry(self, error: DBAPIError) -> bool:
        """Return whether the same transaction may succeed when it is tried again."""
        return self.code_of(error) in self.retry

    def is_read_only(self, error: DBAPIError) -> bool:
        """Return whether a statement wrote in a transaction that may not."""
        return self.code_of(error) in self.read_only

    def lacks_name(self, error: DBAPIError) -> bool:
        """Return whether a statement named a table or a column that the catalog does not have."""
        return self.code_of(error) in self.no_name

    def translated(self, error: DBAPIError, shown: str, *, committing: bool = False) -> IgnisError:
        """
        Return our error for an error of the database.

        *shown*: the catalog's URL without secrets. *committing*: the error came from a commit,
        which may have succeeded.
        """
        code = self.code_of(error)
        message = " ".join(str(error.orig).split())
        if code in self.forbidden:
            return CatalogForbidden(
                f"catalog {shown} refuses this to its role ({message}); nothing was changed: use "
                "another role, or give it the right, as `ignis grants` prints it"
            )
        kind: type[Damaged] | type[CatalogUnavailable] = DamagedCatalog
        if code in self.damaged:
            reason = "is damaged or not a catalog; restore it from a backup"
        elif code in self.no_name:
            reason = f"lacks a table or a column ({message}); {LACKING}"
        else:
            kind = CatalogUnavailable
            known = None if code is None else self.reasons.get(code)
            reason = known or f"failed ({message})"
        unknown = committing and (self.is_unsure(error) or error.connection_invalidated)
        if unknown:
            outcome = "the last change may have been made: check before you repeat it"
        elif error.connection_invalidated or code in self.retry:
            outcome = "nothing was changed; try again later"
        else:
            outcome = "nothing was changed"
        found = kind(f"catalog {shown} {reason}; {outcome}")
        found.outcome_unknown = unknown
        return found
