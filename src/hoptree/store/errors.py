"""What can go wrong with a store: what is there, what was expected, and how to fix it."""

from hoptree.core.errors import HoptreeError


class StoreError(HoptreeError):
    """The base of what a store raises."""


class StoreVersionError(StoreError):
    """The store, or something in it, was written by a version whose stores this Hoptree does not read."""


class MigrationError(StoreError):
    """The tables of an older store cannot be brought up to date now; the store is as it was."""


class StoreMissingError(StoreError, FileNotFoundError):
    """There is no store where one was said to be."""


class StoreUnreachableError(StoreError, OSError):
    """The database cannot be opened: a server that is down, a file that is none of ours."""


class StoreAwayError(StoreUnreachableError):
    """The server of the database does not answer, and may come back: the call can be made again."""


class StoreFullError(StoreError, OSError):
    """There is no room for a state; nothing of it was left behind."""


class StateMissingError(StoreError, LookupError):
    """No state is stored under the key."""


class StateDamagedError(StoreError):
    """A state's file is not what was written; it can be deleted, and is then trained again."""


class StateFormatError(StoreError, TypeError):
    """A state, or a spec, holds something that cannot be stored exactly."""


class EventError(StoreError, ValueError):
    """An event that the journal could not give back exactly as it was."""


class JournalConflictError(StoreError):
    """Somebody else appended to the journal since it was read; nothing was appended."""


class JournalDamagedError(StoreError):
    """An entry of the journal is missing or cannot be read."""


class StudyExistsError(StoreError):
    """A study of that name is registered already."""


class StudyMissingError(StoreError, LookupError):
    """No study of that name is registered."""


class StudyIdleError(StoreError):
    """Nobody drives the study."""


class StudyHeldError(StoreError):
    """Another driver holds the study; the message says who."""


class LeaseLostError(StoreError):
    """The lease was released or taken over: this driver must not write any more."""
