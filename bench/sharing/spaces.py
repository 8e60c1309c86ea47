"""The search spaces of the stage-tree paper (tables 6.1 and 6.2), scaled down: 16 epochs instead of 120.

The paper gives the kinds of schedules in each space and the space's merge rate, but not the values. The values here
were chosen to match those merge rates: that they agree shows nothing, and is asserted only so that it stays so.

The paper's merge rate is that of a space: the steps of all its trials at full length over the unique ones. What a
search saves differs from it, since searches that stop early leave out the ends of trials, which share least.
Where the paper tunes the size of a cutout or the length of sequences, dropout stands in: a value that changes while
a model trains, too. There is one model for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import hoptree as ht
from hoptree.search.protocol import Procedure
from hoptree.search.sampling import make_sampler
from hoptree.search.space import Space, grid

EPOCHS = 16
MIN_EPOCHS = 2
FACTOR = 4
PARTITIONS = 2
WORKERS = 2
SEED = 0


def steps(at: Sequence[float], init: float = 0.1) -> Any:
    """Return a learning rate that falls to a tenth at each milestone."""
    return ht.multistep(init, at=at, gamma=0.1)


def warm(into: Any) -> Any:
    """Return a learning rate that rises for two epochs first."""
    return ht.warmup(0.01, 2, into)


def larger(at: float) -> Any:
    """Return a batch size that doubles."""
    return ht.multistep(64, at=[at], gamma=2)


def more_dropout(at: float) -> Any:
    """Return a dropout that doubles."""
    return ht.multistep(0.1, at=[at], gamma=2.0)


# Of ResNet56, MobileNetV2 and BERT-Base in table 6.1: which values are tuned, and by which kinds of schedules.
RESNET: dict[str, Any] = {
    "lr": ht.choice(
        steps([8, 12]),
        steps([10, 14]),
        ht.cyclic(0.02, 0.1, up=4, down=4),
        warm(steps([8])),
        warm(steps([6, 10])),
        warm(steps([10])),
        warm(ht.exponential(0.1, 0.9)),
        warm(ht.cosine(0.1, period=14)),
    ),
    "batch_size": ht.choice(64, larger(10)),
    "momentum": ht.choice(0.9, ht.multistep(0.9, at=[12], gamma=0.9)),
    "weight_decay": ht.choice(1e-4, 1e-3),
}
MOBILENET: dict[str, Any] = {
    "lr": ht.choice(
        steps([8]), steps([10]), steps([12]), warm(steps([8])), warm(steps([10.5])), warm(ht.cosine(0.1, period=14))
    ),
    "batch_size": ht.choice(64, larger(10.5)),
    "dropout": ht.choice(0.1, more_dropout(14)),
    "momentum": 0.9,
}
BERT: dict[str, Any] = {
    "lr": ht.choice(steps([8]), steps([10]), warm(ht.exponential(0.1, 0.9)), warm(ht.cosine(0.1, period=14))),
    "dropout": ht.choice(0.1, *map(more_dropout, (6, 10, 14))),
    "batch_size": 64,
    "momentum": 0.9,
}


class Case(NamedTuple):
    """One study of table 6.2."""

    title: str
    space: Space
    search: Procedure
    paper: float  # the merge rate of the paper's space, which ours was made to match
    saved: str  # GPU hours, in the paper
    synchronous: bool
    in_ray: bool = True  # Ray Tune has it


def _asha(mode: str) -> Procedure:
    return ht.ASHA(64, EPOCHS, MIN_EPOCHS, FACTOR, mode=mode, concurrent=2 * WORKERS, every=1)  # type: ignore[arg-type]


CASES = {
    "sha": Case("SHA", RESNET, ht.SuccessiveHalving(64, EPOCHS, MIN_EPOCHS, FACTOR, every=1), 2.45, "4.81 x", True),
    "asha": Case("ASHA", RESNET, _asha("promote"), 2.45, "3.92 x", False, in_ray=False),
    "asha-stop": Case('ASHA, `mode="stop"`', RESNET, _asha("stop"), 2.45, "", False),
    "grid-3": Case("grid of 24", MOBILENET, ht.Grid(EPOCHS), 3.14, "3.15 x", True),
    "grid-2": Case("grid of 16", BERT, ht.Grid(EPOCHS), 2.05, "2.07 x", True),
}


def configs(case: Case) -> list[dict[str, Any]]:
    """Return the configs of a case in the order in which its search asks for them."""
    if isinstance(case.search, ht.Grid):
        return list(grid(case.space))
    sampler = make_sampler("random", case.space, SEED)
    return list(iter(sampler.ask, None))


def merge_rate(*spaces: Space) -> float:
    """Return steps over unique steps of all trials of the spaces at full length, without training anything."""
    every = [config for space in spaces for config in grid(space)]
    workload = ht.Workload(configs=every, epochs=EPOCHS, partitions=PARTITIONS)
    return ht.simulate(workload, ht.Cluster(workers=WORKERS, replicas=WORKERS)).work.merge_rate


# --- several studies ----------------------------------------------------------------------------------------


def _study(rates: list[list[int]], warm_rates: list[list[int]], sizes: list[int], init: float) -> dict[str, Any]:
    return {
        "lr": ht.choice(*(steps(at, init) for at in rates), *(warm(steps(at, init)) for at in warm_rates)),
        "batch_size": ht.choice(64, *map(larger, sizes)),
        "momentum": 0.9,
    }


class Several(NamedTuple):
    """Eight studies of 16 trials each that tune learning rate and batch size, as in section 6.2."""

    title: str
    spaces: list[Space]
    paper: tuple[float, float, float] | None  # matched: of the first two, the first four, all eight


COUNTS = (2, 4, 8)
TOGETHER = ht.SuccessiveHalving(16, EPOCHS, MIN_EPOCHS, FACTOR, every=1)

SETS = {
    "paper": Several(
        "spaces made to match the merge rates of figure 6.2 of the paper",
        [
            _study([[4, 6], [11]], [[5], [8]], [4, 7, 14], 0.1),
            _study([[4], [11]], [[7], [9]], [4, 8, 14], 0.1),
            _study([[4], [4, 5]], [[5], [5, 7]], [4, 8, 14], 0.1),
            _study([[4, 6], [5, 11]], [[4, 5], [7, 8]], [4, 7, 14], 0.1),
            _study([[9], [13]], [[2, 8], [8, 13]], [7, 8, 10], 0.05),
            _study([[6], [9]], [[7, 8], [8, 9]], [4, 5, 7], 0.05),
            _study([[5, 9], [6]], [[7, 8], [13]], [4, 5, 10], 0.05),
            _study([[8], [9, 13]], [[4, 7], [7, 9]], [4, 5, 8], 0.05),
        ],
        (2.26, 2.77, 2.47),
    ),
    "overlapping": Several(
        "studies that draw from the same milestones",
        [
            _study([[6, 12], [12]], [[4], [8]], [8, 10, 12], 0.1),
            _study([[4, 12], [12]], [[4, 12], [10, 12]], [8, 10, 12], 0.1),
            _study([[4], [4, 12]], [[8, 12], [12]], [8, 10, 12], 0.1),
            _study([[4], [4, 10]], [[4, 10], [12]], [8, 10, 12], 0.1),
            _study([[4], [4, 12]], [[4], [8]], [8, 10, 12], 0.1),
            _study([[6], [12]], [[8, 10], [10, 12]], [8, 10, 12], 0.1),
            _study([[4, 6], [10]], [[4], [8, 10]], [8, 10, 12], 0.1),
            _study([[10], [10, 12]], [[8, 10], [12]], [8, 10, 12], 0.1),
        ],
        None,
    ),
}
