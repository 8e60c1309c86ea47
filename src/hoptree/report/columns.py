"""Hyper-parameters as axes: numbers by their size or their logarithm, everything else as options in a row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from hoptree.report.facets import Facet, facets
from hoptree.report.study_timeline import TrialTimeline, short

_FACTOR = 50  # numbers that span more than this are told by their logarithm
_FEW = 8  # numbers with at most so many different values stand in a row, however far apart they are


class ParameterColumn(msgspec.Struct, frozen=True):
    """One hyper-parameter of many trials: ``places`` are where they stand (NaN where a config lacks it).

    ``kind`` is "linear", "log" (places are decimal logarithms) or "options" (places count the options from 0).
    ``numbers`` are its values if all of them are numbers, and ``spreads`` says that they do so by their logarithm.
    """

    name: str
    kind: str
    places: tuple[float, ...]
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    numbers: tuple[float | None, ...] = ()
    spreads: bool = False

    @property
    def constant(self) -> bool:
        """Whether all trials have it, and the same value of it."""
        return len(set(self.places)) < 2

    @property
    def span(self) -> tuple[float, float]:
        """From the lowest place to the highest."""
        found = [place for place in (*self.places, *self.ticks) if math.isfinite(place)]
        return min(found, default=0.0), max(found, default=1.0)


def columns(name: str, courses: Sequence[TrialTimeline], longest: int = 18) -> list[ParameterColumn]:
    """Return a hyper-parameter of trials as an axis, or as two of them where it may be a schedule.

    Numbers of few different values stand in a row too: what lies close together could not be read.

    >>> courses = [TrialTimeline(i, {"lr": 10.0**-i}, "complete", "", 0, 1, (), (), ()) for i in range(9)]
    >>> columns("lr", courses)[0].kind, columns("lr", courses[:2])[0].labels
    ('log', ('0.1', '1'))
    """
    return [_column(facet, longest) for facet in facets(name, courses)]


def _column(facet: Facet, longest: int) -> ParameterColumn:
    name, values, missing = facet.name, facet.values, facet.missing
    given = [value for value, absent in zip(values, missing, strict=True) if not absent]
    numbers = [value for value in given if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers and len(numbers) == len(given) and all(math.isfinite(number) for number in numbers):
        return _of_numbers(facet, numbers)
    options = list(dict.fromkeys(map(short, sorted(given, key=_order))))
    place = {option: float(index) for index, option in enumerate(options)}
    places = [math.nan if absent else place[short(value)] for value, absent in zip(values, missing, strict=True)]
    labels = _labels(options, longest)
    return ParameterColumn(name, "options", tuple(places), tuple(map(float, range(len(options)))), labels)


def _of_numbers(facet: Facet, numbers: Sequence[float]) -> ParameterColumn:
    low, high = min(numbers), max(numbers)
    different = sorted(set(numbers))
    log = low > 0 and high / low >= _FACTOR and _is_even(numbers, math.log) > _is_even(numbers, float)
    given = iter(numbers)
    all_of_them = tuple(None if absent else next(given) for absent in facet.missing)

    def column(kind: str, place: Callable[[float], float], ticks: Sequence[float]) -> ParameterColumn:
        places = tuple(math.nan if number is None else place(number) for number in all_of_them)
        labels = tuple(map(short, ticks))
        return ParameterColumn(facet.name, kind, places, tuple(map(place, ticks)), labels, all_of_them, log)

    if len(different) <= _FEW:
        order = {number: float(index) for index, number in enumerate(different)}
        return column("options", order.__getitem__, different)
    ticks = _round(low, high, log, whole=all(isinstance(number, int) for number in numbers))
    return column("log", math.log10, ticks) if log else column("linear", float, ticks)


def _is_even(numbers: Sequence[float], place: Callable[[float], float]) -> float:
    """Return how near the middle number is to the middle of the axis: 0 at the far end, 1 in the middle."""
    low, middle, high = (place(number) for number in (min(numbers), statistics.median(numbers), max(numbers)))
    return 1 - 2 * abs((middle - low) / (high - low) - 0.5)


def _round(low: float, high: float, log: bool, whole: bool) -> list[float]:
    """Return round numbers between two, for an axis."""
    if log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        step = max(1, (last - first) // 5)
        powers = [10.0**power for power in range(first, last + 1, step)]
        return powers if len(powers) >= 2 else [low, *powers, high]
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(5, integer=whole).tick_values(low, high)
    return [float(f"{tick:.10g}") for tick in ticks if low <= tick <= high]


def _order(value: object) -> tuple[int, float, str]:
    """Return where an option stands in a row: numbers by size, then words."""
    if isinstance(value, int | float) and not math.isnan(value):
        return int(not isinstance(value, bool)), float(value), ""
    return 2, 0.0, short(value)


def _labels(options: Sequence[str], longest: int) -> tuple[str, ...]:
    """Return options cut to a length: where they would look alike, what they begin with in common is left out.

    >>> _labels(["multistep([4], 0.1)", "multistep([12], 0.1)", "constant"], 12)
    ('…4], 0.1)', '…12], 0.1)', 'constant')
    """
    cut = [_cut(option, longest) for option in options]
    found = []
    for option, label in zip(options, cut, strict=True):
        alike = [other for other, cut_too in zip(options, cut, strict=True) if cut_too == label]
        differ = (at for at, letters in enumerate(zip(*alike, strict=False)) if len(set(letters)) > 1)
        same = next(differ, 0)
        found.append(_cut(f"…{option[same:]}", longest) if same else label)
    return tuple(found)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def spread(places: Sequence[float], keys: Sequence[int], width: float = 0.6) -> list[float]:
    """Move those who stand on one option apart, the same way every time: by the golden ratio of their numbers.

    >>> [round(place, 2) for place in spread([1.0, 1.0], [0, 1])]
    [0.7, 1.07]
    """
    golden = (math.sqrt(5) - 1) / 2
    return [place + width * ((key * golden) % 1.0 - 0.5) for place, key in zip(places, keys, strict=True)]
