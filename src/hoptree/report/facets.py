"""The facets of a hyper-parameter that may be a schedule: its start value and its form.

A schedule is not a number, and in a space of schedules every trial may have its own: as options they say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hoptree.core.schedules import Scalar, Schedule, Value
from hoptree.report.study_timeline import TrialTimeline

_FORMS = 8  # forms that are shown with their numbers; if there are more, only the kinds are shown


class Facet(msgspec.Struct, frozen=True):
    """The values of an axis, one per trial; ``missing`` says which configs lack it."""

    name: str
    values: tuple[Value, ...]
    missing: tuple[bool, ...]

    @property
    def differs(self) -> bool:
        """Whether trials differ in the value, or in having one."""
        given = {repr(value) for value, absent in zip(self.values, self.missing, strict=True) if not absent}
        return len(given) > 1 or (bool(given) and any(self.missing))


def facets(name: str, trials: Sequence[TrialTimeline]) -> list[Facet]:
    """Return a hyper-parameter of trials as one facet, or as start and form if some values are schedules.

    The start of a warm-up is the value that it leads to. A facet that is the same for all trials is left out.
    """
    values = tuple(trial.config.get(name) for trial in trials)
    missing = tuple(name not in trial.config for trial in trials)
    whole = Facet(name, values, missing)
    if not any(isinstance(value, Schedule) for value in values):
        return [whole]
    start = Facet(f"{name}: start", tuple(map(_start, values)), missing)
    form = Facet(f"{name}: form", tuple(map(_form, values)), missing)
    if len({value for value in form.values if value is not None}) > _FORMS:
        form = Facet(form.name, tuple(map(_kind, values)), missing)
    return [facet for facet in (start, form) if facet.differs] or [whole]


def _start(value: Value) -> Scalar:
    if not isinstance(value, Schedule):
        return value
    return _start(_into(value)) if value.kind == "warmup" else value(0.0)


def _into(warmup: Schedule) -> Value:
    into = warmup.arguments[-1]
    assert isinstance(into, Schedule)
    return into


def _kind(value: Value) -> str:
    if not isinstance(value, Schedule):
        return "constant"
    return f"warmup, {_kind(_into(value))}" if value.kind == "warmup" else value.kind


def _form(value: Value) -> str:
    """Return a schedule without its start value."""
    if not isinstance(value, Schedule) or value.kind == "constant":
        return "constant"
    if value.kind == "warmup":
        return f"warmup({value.arguments[1]:g}), {_form(_into(value))}"
    if value.kind == "piecewise":
        return str(value)
    return str(Schedule(value.kind, value.arguments[1:])) if len(value.arguments) > 1 else value.kind
