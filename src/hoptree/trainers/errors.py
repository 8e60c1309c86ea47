"""What can go wrong in a user's code or with what a trainer was given."""

from __future__ import annotations

import traceback
from pathlib import Path

from hoptree.core.errors import HoptreeError


class TrainerError(HoptreeError):
    """A model, loss, metric, optimizer or value that cannot be trained with; the message says how to fix it."""


class MissingValue(TrainerError, KeyError):  # noqa: N818 (it is what a mapping lacks)
    """The user's function asked for a value that the config does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Diverged(TrainerError):  # noqa: N818 (a result of training, not a mistake in the program)
    """Training left the numbers: a loss that is NaN or infinite."""


class NotReproducibleError(TrainerError):
    """The same steps give other bits: the message names what differs first, and what it usually comes from."""


_OURS = str(Path(__file__).parents[1])
_DISPATCH = {"_call_impl", "_wrapped_call_impl"}  # torch's way into a module's forward: noise to its author


def user_error(error: Exception, explanation: str) -> TrainerError:
    """Return an error that shows the user's own traceback first, without our frames, then the explanation."""
    story = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in story.stack if frame.name not in _DISPATCH]
    own = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    story.stack = traceback.StackSummary.from_list(own or frames)
    return TrainerError(f"{''.join(story.format())}\n{explanation}")
