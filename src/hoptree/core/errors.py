"""Errors, by whose fault they are.

Every message says what was given, what was expected and how to fix it.
"""


class HoptreeError(Exception):
    """Base class of all errors that Hoptree raises on purpose."""


class ScheduleError(HoptreeError, ValueError):
    """An invalid schedule: a decreasing milestone, a NaN, an empty period."""


class WorkloadError(HoptreeError, ValueError):
    """A workload that can never run; the message begins with the invalid field."""


class ProtocolError(HoptreeError):
    """The engine received an event that cannot have happened; the message holds the history of that run."""


class InvariantError(AssertionError):
    """The engine broke one of its invariants: a bug of ours; the message holds the steps that led to it."""


class TransitionError(InvariantError):
    """A state machine of the engine met an event that its table does not allow in that state: a bug of ours."""


class MissingExtraError(HoptreeError, ImportError):
    """A feature needs a package that is not installed; the message names the extra to install."""


class StudyChangedError(HoptreeError):
    """The store holds a study of this name with different code, data or settings."""


class RefusedError(HoptreeError):
    """The request to train was rejected before anything was trained."""
