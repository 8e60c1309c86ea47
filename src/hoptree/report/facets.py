"""The facets of a hyper-parameter that may be a schedule: the value that it starts from, and its form.

A schedule is no number, and a space of schedules gives every trial one of its own: as options they say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hoptree.core.schedules import Scalar, Schedule, Value
from hoptree.report.study_timeline import TrialTimeline

_FORMS = 8  # that are told with their numbers; of more, the kinds alone


class Facet(msgspec.Struct, frozen=True):
    """What an axis is made of: a value for each trial; ``missing`` says whose config lacks it."""

    name: str
    values: tuple[Value, ...]
    missing: tuple[bool, ...]

    @property
    def differs(self) -> bool:
        """Whether trials differ in it, in the value or in having one."""
        given = {repr(value) for value, absent in zip(self.values, self.missing, strict=True) if not absent}
        return len(given) > 1 or (bool(given) and any(self.missing))


def facets(name: str, courses: Sequence[TrialTimeline]) -> list[Facet]:
    """Return a hyper-parameter of trials as one facet, or as start and form where some of it are schedules.

    The start of a warm-up is the value that it leads to. What all trials have in common is left out.
    """
    values = tuple(course.config.get(name) for course in courses)
    missing = tuple(name not in course.config for course in courses)
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
    """Return a schedule without the number that it starts from."""
    if not isinstance(value, Schedule) or value.kind == "constant":
        return "constant"
    if value.kind == "warmup":
        return f"warmup({value.arguments[1]:g}), {_form(_into(value))}"
    if value.kind == "piecewise":
        return str(value)
    return str(Schedule(value.kind, value.arguments[1:])) if len(value.arguments) > 1 else value.kind
