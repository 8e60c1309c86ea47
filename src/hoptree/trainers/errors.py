"""Errors in the user's code or in the arguments of a trainer."""

from __future__ import annotations

import traceback
from pathlib import Path

from hoptree.core.errors import HoptreeError


class TrainerError(HoptreeError):
    """A model, loss, metric, optimizer or value that cannot be trained; the message says how to fix it."""


class MissingValue(TrainerError, KeyError):  # noqa: N818 (named after what the mapping lacks)
    """The user's function read a value that the config does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Diverged(TrainerError):  # noqa: N818 (a result of training, not a programming error)
    """Training diverged: the loss is NaN or infinite."""


class NotReproducibleError(TrainerError):
    """The same steps give different bits; the message names the first difference and its usual causes."""


_OURS = str(Path(__file__).parents[1])
_DISPATCH = {"_call_impl", "_wrapped_call_impl"}  # torch frames that do not help the user


def user_error(error: Exception, explanation: str) -> TrainerError:
    """Return an error that shows the user's traceback without our frames, then the explanation."""
    formatted = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in formatted.stack if frame.name not in _DISPATCH]
    own = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    formatted.stack = traceback.StackSummary.from_list(own or frames)
    return TrainerError(f"{''.join(formatted.format())}\n{explanation}")


class LayoutError(TrainerError):
    """A layout that the user has fixed, and that the models cannot have."""


class GangError(HoptreeError):
    """A worker that trains a unit together with others has lost one of them: the system's fault, not the user's."""
