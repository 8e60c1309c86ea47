"""Lineage: the history that determines a state, cut into whole units.

A trial's history is a list of phases (a config that holds from an epoch on; more than one after a branch). It
is cut into *segments*: consecutive units whose values have the same forms. Two trials share exactly the units of
their equal leading segments, so sharing needs no comparison of values, and keys depend neither on the order in
which trials arrive nor on other trials (see ``keys.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.core.plain_values import is_text, plain
from hoptree.core.schedules import Config, Form, Piece, Scalar, Value, as_schedule, until

ConfigItems: TypeAlias = tuple[tuple[str, Value], ...]
Content: TypeAlias = tuple[Form | float, ...]  # form, or form, boundary, form, … within one unit


class Phase(msgspec.Struct, frozen=True, array_like=True):
    """A config that holds from an epoch on."""

    start: int
    config: ConfigItems


History: TypeAlias = tuple[Phase, ...]


class Values(NamedTuple):
    """The values that a unit trains with, by form; two units with equal values and history are the same unit."""

    items: tuple[tuple[str, Content], ...]

    def at(self, progress: float) -> dict[str, Scalar]:
        """Return every value at a progress (in epochs) within the unit.

        >>> segments(history({"lr": 0.1}), partitions=4, units=4)[0].values.at(0.5)
        {'lr': 0.1}
        """
        return {name: _value(content, progress) for name, content in self.items}

    def constants(self) -> dict[str, Scalar]:
        """Return the values that do not change within the unit.

        >>> segments(history({"width": 8}), partitions=4, units=4)[0].values.constants()
        {'width': 8}
        """
        forms = [(name, content[0]) for name, content in self.items if len(content) == 1]
        return {name: form.at(0.0) for name, form in forms if isinstance(form, Form) and form.kind == "constant"}


class Segment(NamedTuple):
    """Units from ``start`` on, all with the same forms, until the next segment."""

    start: int
    values: Values


def history(config: Config) -> History:
    """Return the history of a trial that follows one config from the beginning."""
    return (Phase(0, config_items(config)),)


def config_items(config: Config) -> ConfigItems:
    """Return a config as sorted pairs; values must be constants or schedules."""
    if not isinstance(config, Mapping):
        raise WorkloadError(f"config: {config!r}; expected names and values, such as {{'lr': 0.01}}")
    if not config:
        raise WorkloadError("config: it is empty; expected at least one hyper-parameter")
    for name in config:
        if not isinstance(name, str) or not name:
            raise WorkloadError(f"config: the name {name!r}; expected a non-empty string")
        if not is_text(name):
            raise WorkloadError(
                f"config: the name {name!r}; expected text that UTF-8 can encode, without lone surrogates"
            )
    items = []
    for name in sorted(config):
        value = plain(config[name])
        try:
            as_schedule(value)
        except ValueError as error:
            raise WorkloadError(f"config[{name!r}]: {error}") from None
        items.append((name, value))
    return tuple(items)


def branched(source: History, at: int, config: Config) -> History:
    """Return ``source`` up to the epoch ``at`` and ``config`` from there on, in absolute progress."""
    kept = tuple(phase for phase in source if phase.start < at)
    return (*kept, Phase(at, config_items(config)))


def segments(phases: History, partitions: int, units: int) -> list[Segment]:
    """Cut a history into segments that cover the first ``units`` units.

    >>> from hoptree.core.schedules import multistep
    >>> [s.start for s in segments(history({"lr": multistep(0.1, at=[2], gamma=0.1)}), 4, 40)]
    [0, 8]
    """
    horizon = units / partitions
    names = sorted({name for phase in phases for name, _ in phase.config})
    tracks = [_track(_pieces(phases, name, horizon), partitions, units) for name in names]
    starts = sorted({start for track in tracks for start, _ in track})
    positions = [0] * len(tracks)
    result: list[Segment] = []
    for start in starts:
        items: list[tuple[str, Content]] = []
        for index, track in enumerate(tracks):
            while positions[index] + 1 < len(track) and track[positions[index] + 1][0] <= start:
                positions[index] += 1
            content = track[positions[index]][1]
            if content != (_ABSENT,):
                items.append((names[index], content))
        result.append(Segment(start, Values(tuple(items))))
    return result


_ABSENT = Form("absent", "", ())
_SNAP = 1e-9  # a milestone this close to a unit's edge counts as on it: no training step lies in between


def _pieces(phases: History, name: str, horizon: float) -> Iterator[Piece]:
    """Yield a name's pieces over all phases, in absolute progress, neighbours of equal form joined."""
    last: Form | None = None
    for index, phase in enumerate(phases):
        end = phases[index + 1].start if index + 1 < len(phases) else math.inf
        for piece in _clipped(phase, name, min(end, horizon)):
            if piece.form != last:
                yield piece
            last = piece.form


def _clipped(phase: Phase, name: str, end: float) -> Iterator[Piece]:
    if phase.start >= end:
        return
    value = dict(phase.config).get(name, _ABSENT)
    if isinstance(value, Form):
        yield Piece(phase.start, value)
        return
    current: Piece | None = None
    for piece in until(as_schedule(value).pieces(), end):
        if piece.start <= phase.start:
            current = Piece(phase.start, piece.form)
            continue
        if current is not None:
            yield current
        current = piece
    assert current is not None
    yield current


def beginning(config: Config) -> dict[str, Scalar]:
    """Return the values of a config at the start of training.

    >>> from hoptree.core.schedules import multistep
    >>> beginning({"lr": multistep(0.1, at=[2], gamma=0.1)})
    {'lr': 0.1}
    """
    return segments(history(config), partitions=1, units=1)[0].values.at(0.0)


def _track(pieces: Iterable[Piece], partitions: int, units: int) -> list[tuple[int, Content]]:
    """Turn pieces into (first unit, content); a unit with a boundary inside it is a segment of its own."""
    track: list[tuple[int, Content]] = []
    form: Form | None = None
    for piece in pieces:
        exact = piece.start * partitions
        nearest = round(exact)
        unit = nearest if abs(exact - nearest) <= _SNAP else math.floor(exact)
        if unit >= units:
            break
        inside = unit != nearest or abs(exact - nearest) > _SNAP
        if not inside:
            if track and track[-1][0] == unit:
                track.pop()
            track.append((unit, (piece.form,)))
        else:
            assert form is not None
            before: Content = (form,)
            if track[-1][0] == unit:
                before = track.pop()[1]
            elif track[-1][0] == unit + 1:  # the unit was opened by an earlier boundary inside it
                track.pop()
                before = track.pop()[1]
            track.append((unit, (*before, piece.start, piece.form)))
            if unit + 1 < units:
                track.append((unit + 1, (piece.form,)))
        form = piece.form
    return track


def _value(content: Content, progress: float) -> Scalar:
    form = content[0]
    for boundary, later in zip(content[1::2], content[2::2], strict=True):
        assert isinstance(boundary, float | int)
        if progress >= boundary:
            form = later
    assert isinstance(form, Form)
    return form.at(progress)
