"""How several jobs divide nodes that are limited: by their work, and in turn if they are too many."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hoptree.elastic.job import Job


def work(job: Job) -> float:
    """Return the seconds of all trials of a job on one device."""
    return sum(stage.trials * stage.seconds for stage in job.stages)


def shares(nodes: int, jobs: Sequence[Job], *, least: int) -> list[int]:
    """Return the nodes of each job: at least so many, and the others in proportion to its work.

    >>> from hoptree.elastic.job import JobStage
    >>> shares(8, [Job((JobStage(6, 10.0),), {}), Job((JobStage(2, 10.0),), {})], least=1)
    [6, 2]
    """
    found = [least] * len(jobs)
    for _ in range(nodes - least * len(jobs)):
        neediest = max(range(len(jobs)), key=lambda index: (work(jobs[index]) / (found[index] or 0.5), -index))
        found[neediest] += 1
    return found


def jobs_in_turn(jobs: Sequence[Job], most: int | None) -> list[Job]:
    """Return at most so many jobs: those with the least work are joined, and follow each other."""
    left = list(jobs)
    while most is not None and len(left) > most:
        left.sort(key=work)
        left = [_joined(left[0], left[1]), *left[2:]]
    return left


def _joined(first: Job, second: Job) -> Job:
    """Return a job with the stages of both, one after another, and the speed-ups that both have."""
    return msgspec.structs.replace(
        first,
        stages=first.stages + second.stages,
        speed_ups={
            width: min(speed, second.speed_ups[width])
            for width, speed in first.speed_ups.items()
            if width in second.speed_ups
        },
        divisible=first.divisible and second.divisible,
        sync=max(first.sync, second.sync),
        data_gb=max(first.data_gb, second.data_gb),
    )
