"""Small jobs and instances, and the best plans for them by trying all."""

import itertools
import random

from hypothesis import strategies as st

from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import Terms, expected_timeline

SPEED_UPS = [{}, {2: 1.9}, {2: 1.7, 4: 2.8, 8: 4.0}, {2: 1.2, 3: 2.0}, {4: 3.5, 16: 9.0}, {2: 2.0, 4: 4.0}]


def random_case(generator: random.Random, *, spread: float = 0.0, most: int | None = 6) -> tuple[Job, Instance]:
    trials = sorted((generator.choice([1, 2, 3, 4, 5, 8, 9, 16, 27]) for _ in range(3)), reverse=True)
    seconds = [generator.choice([5.0, 20.0, 60.0, 200.0, 900.0]) * generator.uniform(0.5, 2.0) for _ in trials]
    job = Job(
        tuple(JobStage(count, took, spread * took) for count, took in zip(trials, seconds, strict=True)),
        {1: 1.0, **generator.choice(SPEED_UPS)},
        divisible=generator.random() < 0.5,
        sync=generator.choice([0.0, 0.0, 3.0]),
        data_gb=generator.choice([0.0, 10.0]),
    )
    instance = Instance(
        "made-up",
        devices=generator.choice([1, 1, 2, 4]),
        price=generator.uniform(0.5, 30.0),
        minimum=generator.choice([0.0, 60.0, 60.0, 600.0]),
        provision=generator.choice([None, 0.0, 15.0, 60.0]),
        start=generator.choice([None, 0.0, 15.0, 100.0]),
        idle_tail=generator.choice([0.0, 0.0, 30.0, 90.0]),
        data_price=generator.choice([0.0, 0.01]),
        max_count=most,
        billing=generator.choice(["instance", "instance", "instance", "function"]),
    )
    return job, instance


def every_plan(
    job: Job, instance: Instance, *, running: int = 0, ahead: bool = True
) -> list[tuple[float, float, tuple[int, ...]]]:
    """Return time, cost and numbers of nodes of every plan."""
    assert instance.max_count is not None
    model, terms = StageModel(job, instance), Terms(instance, job.data_gb, ahead=ahead)
    found = []
    for counts in itertools.product(range(1, instance.max_count + 1), repeat=len(job.stages)):
        line = expected_timeline(counts, model, terms, running=running)
        found.append((line.seconds, line.cost, counts))
    return found


CASES = st.integers(0, 2**32).map(lambda seed: random_case(random.Random(seed)))
