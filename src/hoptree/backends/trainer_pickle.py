"""A trainer on its way to workers: pickled once, over private channels only."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from hoptree.core.errors import RefusedError
from hoptree.worker.agreement import SentTrainer, TrainerIdentity

if TYPE_CHECKING:
    from hoptree.trainers.base import Trainer

_LARGE = 1 << 26  # bytes of a trainer that is not loaded once more in this process


def send_off(trainer: Trainer) -> bytes:
    """Return a trainer as it is sent to workers; refuse one that holds what cannot be.

    A worker that unpickles it refuses to work if it has loaded other code than this process.
    """
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(trainer)
    except RefusedError:  # says itself what is wrong
        raise
    except Exception as error:
        raise RefusedError(
            f"trainer: it cannot be sent to a worker ({type(error).__name__}: {error}); its functions may use "
            "modules, constants and arrays, but no open files, locks, connections or generators: make those inside "
            "the function"
        ) from error
    return pickle.dumps(SentTrainer(data, TrainerIdentity.of(_as_loaded(trainer, data))))


def _as_loaded(trainer: Trainer, data: bytes) -> Trainer:
    """Return the trainer as a worker with the same modules loads it: an object may be another after pickling."""
    import cloudpickle

    if len(data) > _LARGE:
        return trainer
    try:
        loaded: Trainer = cloudpickle.loads(data)
    except Exception:  # it may well be loaded elsewhere; a worker says why not
        return trainer
    return loaded
