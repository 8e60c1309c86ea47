"""Profiling a study: what units of its configs take on one worker and on several, kept for later studies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.backends.choice import worker_count
from hoptree.backends.profiler import Profiler
from hoptree.backends.ray_settings import check_count
from hoptree.core.errors import RefusedError
from hoptree.core.events import TrialAsked
from hoptree.core.layout_choice import is_too_large
from hoptree.core.layouts import DATA, SINGLE
from hoptree.core.lineage import beginning
from hoptree.core.profile import Profile, ProfileEntry, seconds_by_devices, widths_that_pay
from hoptree.core.schedules import Scalar
from hoptree.driver.study_group import StudyGroup
from hoptree.forecast.profile_report import ProfileReport
from hoptree.record.error_format import brief_errors
from hoptree.record.spec import StudySpec
from hoptree.trainers.layout_options import has_parts

if TYPE_CHECKING:
    from hoptree.study.study import Study

_MOST_ARCHITECTURES = 8  # that are measured in one call; others are estimated from these
_MOST_FAILED = 3  # configs that could not be measured before the others are given up


def profile_study(study: Study, workers: int | None, *, again: bool, memory: int = 0) -> ProfileReport:
    """Measure what the store does not have yet, and return the profile of the study's configs."""
    trainer, data = study.trainer, study.data
    with brief_errors(study.store):
        if workers is not None:
            check_count("workers", workers)
        count = min(worker_count(workers, trainer), trainer.shards)
        with study.open_store() as store:
            data.check()
            group = StudyGroup([study])
            spec = StudySpec.together(group.specs)
            kind = trainer.device_kind()
            known = Profile() if again else store.profiles.find(spec.trainer, spec.data).of_kind(kind)
            chosen: list[ProfileEntry] = []
            failed: list[tuple[dict[str, Scalar], str]] = []
            measured = architectures = 0
            with Profiler(trainer, data, store.states, count, memory) as profiler:
                for event in group.tuners(spec).start():
                    if not isinstance(event, TrialAsked) or any(_covers(chosen, event)):
                        continue
                    values = beginning(dict(event.config))
                    entries = [entry for entry in known.entries if entry.covers(values)]
                    if not _is_complete(entries, count, has_parts(trainer), memory):
                        entries, error = profiler.measure(values)
                        measured += len(entries)
                        if error:
                            failed.append((values, error))
                        store.profiles.put(spec.trainer, spec.data, entries)
                    chosen += entries
                    architectures += bool(entries)
                    if architectures >= _MOST_ARCHITECTURES or len(failed) >= _MOST_FAILED:
                        break
    if failed and not chosen:
        raise RefusedError(f"{study.name}: no config could be measured. First error:\n{failed[0][1]}")
    chosen.sort(key=lambda entry: (str(sorted(entry.values.items())), entry.devices, entry.layout))
    return ProfileReport(study.name, chosen[0].kind if chosen else kind, Profile(tuple(chosen)), measured, failed)


def _covers(entries: list[ProfileEntry], event: TrialAsked) -> list[bool]:
    values = beginning(dict(event.config))
    return [entry.covers(values) for entry in entries]


def _is_complete(entries: list[ProfileEntry], count: int, has_layouts: bool, memory: int) -> bool:
    """Return whether layouts are known, and widths up to the first that does not pay or the number of workers."""
    if has_layouts and all(entry.layout in (SINGLE, DATA) for entry in entries):
        return False
    times = seconds_by_devices(entries)
    if 1 not in times:
        alone = [entry for entry in entries if entry.layout == SINGLE and is_too_large(entry, memory)]
        return bool(alone) and any(entry.fits for entry in entries)
    beyond = 2 * widths_that_pay(times)[-1]
    return beyond > count or beyond in times
