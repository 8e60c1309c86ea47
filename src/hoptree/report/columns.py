"""Hyper-parameters as axes: numbers on a linear or logarithmic scale, everything else as options side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from hoptree.report.facets import Facet, facets
from hoptree.report.study_timeline import TrialTimeline, short

_FACTOR = 50  # numbers whose range exceeds this factor may get a logarithmic scale
_FEW = 8  # numbers with at most this many different values are drawn as options


class ParameterColumn(msgspec.Struct, frozen=True):
    """One hyper-parameter of many trials: ``places`` are their positions (NaN if a config lacks it).

    ``kind`` is "linear", "log" (places are decimal logarithms) or "options" (places count the options from 0).
    ``numbers`` are its values if all of them are numbers; ``spreads`` says that a logarithmic scale suits them.
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
        """Whether all trials have the same value."""
        return len(set(self.places)) < 2

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest place."""
        found = [place for place in (*self.places, *self.ticks) if math.isfinite(place)]
        return min(found, default=0.0), max(found, default=1.0)


def columns(name: str, trials: Sequence[TrialTimeline], longest: int = 18) -> list[ParameterColumn]:
    """Return a hyper-parameter of trials as one axis, or as two if some values are schedules.

    Numbers with few different values are drawn as options: values close to each other would be unreadable.

    >>> trials = [TrialTimeline(i, {"lr": 10.0**-i}, "complete", "", 0, 1, (), (), ()) for i in range(9)]
    >>> columns("lr", trials)[0].kind, columns("lr", trials[:2])[0].labels
    ('log', ('0.1', '1'))
    """
    return [_column(facet, longest) for facet in facets(name, trials)]


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
    values = tuple(None if absent else next(given) for absent in facet.missing)

    def column(kind: str, place: Callable[[float], float], ticks: Sequence[float]) -> ParameterColumn:
        places = tuple(math.nan if number is None else place(number) for number in values)
        labels = tuple(map(short, ticks))
        return ParameterColumn(facet.name, kind, places, tuple(map(place, ticks)), labels, values, log)

    if len(different) <= _FEW:
        order = {number: float(index) for index, number in enumerate(different)}
        return column("options", order.__getitem__, different)
    ticks = _round(low, high, log, whole=all(isinstance(number, int) for number in numbers))
    return column("log", math.log10, ticks) if log else column("linear", float, ticks)


def _is_even(numbers: Sequence[float], place: Callable[[float], float]) -> float:
    """Return how close the median is to the middle of the axis: 0 at an end, 1 in the middle."""
    low, middle, high = (place(number) for number in (min(numbers), statistics.median(numbers), max(numbers)))
    return 1 - 2 * abs((middle - low) / (high - low) - 0.5)


def _round(low: float, high: float, log: bool, whole: bool) -> list[float]:
    """Return round numbers between two numbers, as ticks."""
    if log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        step = max(1, (last - first) // 5)
        powers = [10.0**power for power in range(first, last + 1, step)]
        return powers if len(powers) >= 2 else [low, *powers, high]
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(5, integer=whole).tick_values(low, high)
    return [float(f"{tick:.10g}") for tick in ticks if low <= tick <= high]


def _order(value: object) -> tuple[int, float, str]:
    """Return a sort key for options: booleans, then numbers by size, then text."""
    if isinstance(value, int | float) and not math.isnan(value):
        return int(not isinstance(value, bool)), float(value), ""
    return 2, 0.0, short(value)


def _labels(options: Sequence[str], longest: int) -> tuple[str, ...]:
    """Return options truncated to a length; if they would look alike, their common prefix is left out.

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
    """Spread points on the same option apart, deterministically: by the golden ratio of their numbers.

    >>> [round(place, 2) for place in spread([1.0, 1.0], [0, 1])]
    [0.7, 1.07]
    """
    golden = (math.sqrt(5) - 1) / 2
    return [place + width * ((key * golden) % 1.0 - 0.5) for place, key in zip(places, keys, strict=True)]
