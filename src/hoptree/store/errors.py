"""The errors of a store."""

from hoptree.core.errors import HoptreeError


class StoreError(HoptreeError):
    """The base of a store's errors."""


class StoreVersionError(StoreError):
    """The store, or something in it, was written by a version of Hoptree that this one cannot read."""


class MigrationError(StoreError):
    """The tables of an older store cannot be upgraded now; the store is unchanged."""


class StoreMissingError(StoreError, FileNotFoundError):
    """There is no store at the given location."""


class StoreUnreachableError(StoreError, OSError):
    """The database cannot be opened: its server is down, or the file is not a Hoptree store."""


class StoreUnavailableError(StoreUnreachableError):
    """The database does not answer at the moment: the call can be repeated."""


class StoreFullError(StoreError, OSError):
    """The disk is full: a state could not be stored, and no partial file was left."""


class StateMissingError(StoreError, LookupError):
    """No state is stored under the key."""


class StateDamagedError(StoreError):
    """A state's file differs from what was written; it can be deleted, and is then trained again."""


class StateFormatError(StoreError, TypeError):
    """A state, or a spec, holds something that cannot be stored exactly."""


class EventError(StoreError, ValueError):
    """An event cannot be encoded in the journal, or decoded from it, exactly."""


class JournalConflictError(StoreError):
    """Another process appended to the journal since it was read; nothing was appended."""


class JournalDamagedError(StoreError):
    """An entry of the journal is missing or cannot be read."""


class StudyExistsError(StoreError):
    """A study with that name is already registered."""


class StudyMissingError(StoreError, LookupError):
    """No study with that name is registered."""


class StudyIdleError(StoreError):
    """No process drives the study."""


class StudyHeldError(StoreError):
    """Another process drives the study; the message names it."""


class LeaseLostError(StoreError):
    """The lease was released or taken over: this driver must not write anymore."""
