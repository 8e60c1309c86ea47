"""The workloads of RubberBand's evaluation, and the scaling curves that are assumed for them."""

from __future__ import annotations

import math

from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage

PRICE = 12.24
"""Dollars per hour of a p3.8xlarge with 4 GPUs: with it the costs of table 2 follow from its times."""

RESNET50_512 = {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.6, 16: 8.0}
RESNET50_2048 = {1: 1.0, 2: 1.97, 4: 3.7, 8: 6.6, 16: 10.5}
RESNET101 = {1: 1.0, 2: 1.75, 4: 3.0, 8: 4.6, 16: 5.9}
RESNET152 = {1: 1.0, 2: 1.85, 4: 3.4, 8: 5.6, 16: 8.0}
BERT = {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.2, 16: 9.5}
"""Speeds by number of GPUs. The paper prints none but those of table 1, for 1, 2 and 4 GPUs of one node: all of
these are assumptions. That of ResNet-101, with `EPOCH_SECONDS`, gives the times of table 2's static rows
within 7 %."""

EPOCH_SECONDS = 100.0  # of ResNet-101 on one GPU, an assumption too


def halving(trials: int, least: int, most: int, eta: int = 2) -> list[tuple[int, int]]:
    """Return trials and units of each stage of SHA(n, r, R, eta): the last stage ends after R units in all.

    >>> halving(32, 1, 50, 3)
    [(32, 1), (10, 3), (3, 9), (1, 37)]
    """
    stages: list[tuple[int, int]] = []
    trained, units = 0, least
    while trials > 1 and trained + units < most:
        stages.append((trials, units))
        trained, units, trials = trained + units, units * eta, trials // eta
    return [*stages, (trials, most - trained)]


def job(
    stages: list[tuple[int, int]],
    seconds: float,
    speed_ups: dict[int, float],
    *,
    spread: float = 0.0,
    data_gb: float = 0.0,
) -> Job:
    """Return a job whose units take ``seconds`` on one GPU; trials take turns, as in RubberBand."""
    return Job(
        tuple(JobStage(trials, units * seconds, math.sqrt(units) * spread) for trials, units in stages),
        speed_ups,
        divisible=False,
        data_gb=data_gb,
    )


def p3(*, provision: float = 0.0, start: float = 0.0, data_price: float = 0.0, function: bool = False) -> Instance:
    """Return a p3.8xlarge."""
    return Instance(
        "p3.8xlarge",
        devices=4,
        price=PRICE,
        provision=provision,
        start=start,
        data_price=data_price,
        billing="function" if function else "instance",
    )


def table_2() -> tuple[Job, Instance]:
    """Return ResNet-101 on CIFAR-10 with SHA(32, 1, 50, 3), and instances from a warm pool."""
    return job(halving(32, 1, 50, 3), EPOCH_SECONDS, RESNET101), p3(provision=15.0, start=15.0)


def figure_12(start: float) -> tuple[Job, Instance]:
    """Return 512 ResNet-50 with SHA(512, 4, 4096), whose iterations take 12 s on one GPU."""
    return job(halving(512, 4, 4096), 12.0, RESNET50_2048), p3(start=start)
