"""What can go wrong, by whose fault it is.

Every message says what was given, what was expected and how to fix it.
"""


class HoptreeError(Exception):
    """The base of all errors that Hoptree raises on purpose."""


class ScheduleError(HoptreeError, ValueError):
    """A schedule that cannot be: a decreasing milestone, a NaN, an empty period."""


class WorkloadError(HoptreeError, ValueError):
    """A workload that can never be run; the message begins with the offending field."""


class ProtocolError(HoptreeError):
    """The engine was told something that cannot have happened; carries the story of that unit."""


class InvariantError(AssertionError):
    """A promise of the engine was broken: a bug of ours, with the story that led to it."""


class MissingExtraError(HoptreeError, ImportError):
    """A feature needs a package that is not installed; the message names the extra."""


class StudyChangedError(HoptreeError):
    """The store holds a study of this name with other code, data or settings."""


class RefusedError(HoptreeError):
    """What was to be trained cannot be; nothing was."""
