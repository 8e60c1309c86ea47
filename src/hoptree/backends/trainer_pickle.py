"""Pickles a trainer for workers: once, and only for private channels."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from hoptree.core.errors import RefusedError
from hoptree.worker.agreement import SentTrainer, TrainerIdentity

if TYPE_CHECKING:
    from hoptree.trainers.base import Trainer

_LARGE = 1 << 26  # bytes: a larger trainer is not loaded a second time in this process


def pickle_trainer(trainer: Trainer) -> bytes:
    """Return a trainer as it is sent to workers; raise an error if it holds something that cannot be pickled.

    Unpickling it raises an error in a worker that has loaded other code than this process.
    """
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(trainer)
    except RefusedError:  # it has a message of its own
        raise
    except Exception as error:
        raise RefusedError(
            f"trainer: it cannot be sent to a worker ({type(error).__name__}: {error}); its functions may use "
            "modules, constants and arrays, but no open files, locks, connections or generators: create those "
            "inside the function"
        ) from error
    return pickle.dumps(SentTrainer(data, TrainerIdentity.of(_as_loaded(trainer, data))))


def _as_loaded(trainer: Trainer, data: bytes) -> Trainer:
    """Return the trainer as a worker with the same modules loads it: pickling may change an object."""
    import cloudpickle

    if len(data) > _LARGE:
        return trainer
    try:
        loaded: Trainer = cloudpickle.loads(data)
    except Exception:  # a worker may be able to load it, and reports the error if not
        return trainer
    return loaded
