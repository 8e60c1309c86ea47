"""Rungs: the epochs at which successive halving compares trials, and how many reach each of them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Rung(NamedTuple):
    """The number of trials that are trained up to an epoch."""

    trials: int
    epochs: int


Bracket: TypeAlias = tuple[Rung, ...]


def rung_epochs(min_epochs: int, max_epochs: int, factor: int) -> list[int]:
    """Return min_epochs times the powers of factor below max_epochs, and max_epochs.

    These are the paper's rungs if max_epochs is such a power itself. If it is not, the best trials continue from
    the last power to max_epochs, as in Ray Tune and Optuna.

    >>> rung_epochs(1, 9, 3), rung_epochs(15, 120, 4)
    ([1, 3, 9], [15, 60, 120])
    """
    epochs = []
    while min_epochs < max_epochs:
        epochs.append(min_epochs)
        min_epochs *= factor
    return [*epochs, max_epochs]


def bracket(trials: int, epochs: list[int], factor: int) -> Bracket:
    """Return how many trials reach each rung: one in ``factor`` continues, rounded down, and at least one.

    >>> bracket(10, [1, 3, 9], 3)
    (Rung(trials=10, epochs=1), Rung(trials=3, epochs=3), Rung(trials=1, epochs=9))
    """
    return tuple(Rung(max(1, trials // factor**index), epoch) for index, epoch in enumerate(epochs))


def epochs_of(rungs: Bracket) -> int:
    """Return the epochs that a bracket trains: a rung continues from the states of the rung below.

    >>> epochs_of(bracket(9, [1, 3, 9], 3))
    21
    """
    below = [0, *(rung.epochs for rung in rungs)]
    return sum(rung.trials * (rung.epochs - before) for rung, before in zip(rungs, below, strict=False))
