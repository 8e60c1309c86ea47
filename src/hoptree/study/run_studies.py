"""Running studies together with one driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from hoptree.backends.choice import Where
from hoptree.backends.event_loop import Observer
from hoptree.core.errors import WorkloadError
from hoptree.driver.driver import Driver
from hoptree.driver.options import RunOptions
from hoptree.driver.study_group import StudyGroup
from hoptree.record.error_format import brief_errors
from hoptree.record.record import Record
from hoptree.record.results import Results

if TYPE_CHECKING:
    from hoptree.mirror import WandB
    from hoptree.study.study import Study

log = logging.getLogger("hoptree")


def run(studies: Sequence[Study], workers: int | None = None, **options: Any) -> list[Results]:
    """Train several studies at once, and return the results of each.

    Work that they have in common is trained once. They must have the same trainer, data, seed and store, and may
    differ in space, search and goal. The savings are those of all of them together. ``options`` are those of
    ``Study.run``; a ``mirror`` is updated for each of the studies.
    """
    return drive_studies(_check_studies(studies), run_options(workers=workers, **options))


def run_options(**given: Any) -> RunOptions:
    """Return the options of a run; raise an error for an unknown one."""
    unknown = [name for name in given if name not in RunOptions.__struct_fields__]
    if unknown:
        expected = ", ".join(RunOptions.__struct_fields__)
        raise WorkloadError(f"run: unknown option {unknown[0]!r}; expected one of {expected}")
    return RunOptions(**given)


def _check_studies(studies: object) -> list[Study]:
    from hoptree.study.study import Study

    if isinstance(studies, Sequence) and all(isinstance(study, Study) for study in studies):
        return list(studies)
    raise WorkloadError(f"studies: {studies!r}; expected a list of studies, such as run([a, b])")


def drive_studies(studies: Sequence[Study], options: RunOptions) -> list[Results]:
    """Run studies together, and return the results of each."""
    group = StudyGroup(studies)
    with brief_errors(group.first.store):
        elastic = None
        if options.instance is not None:
            from hoptree.study.planned_runs import plan_run

            elastic = plan_run(studies, options)
        driver = Driver(group, options, follow=partial(_mirrors, studies, options.mirror), elastic=elastic)
        found = driver.run(lambda *found: [study.outcome(*found) for study in studies])
    for results in found:
        results.limit_reached = driver.reached_limit
    if found[0].cost is not None:
        log.info("%s: %s", group.name, found[0].cost.summary())
    return found


def train_request(study: Study, request: int, workers: int | None, backend: Where) -> None:
    """Train the trial of a user request until it ends, whatever searches would ask for next."""
    options = RunOptions(workers=workers, backend=backend, quiet=True)
    Driver(StudyGroup([study]), options, only=request).run(lambda *_: None)


def _mirrors(
    studies: Sequence[Study], where: str | WandB | None, record: Record, stack: ExitStack
) -> Sequence[Observer]:
    """Open a mirror for every study, and return the observers that update them."""
    if where is None:
        return ()
    from hoptree.mirror import LiveMirror

    return [
        stack.enter_context(LiveMirror(study.open_mirror(where), record, study.name)).watch for study in studies
    ]
