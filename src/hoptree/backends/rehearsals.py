"""The configs that workers rehearse before anything is trained, and the checks of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from logging import getLogger
from typing import TypeAlias, final

import msgspec

from hoptree.core.errors import RefusedError
from hoptree.core.keys import identity
from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.schedules import Config, Scalar
from hoptree.worker.messages import RehearsalResult, Rehearse

Probed: TypeAlias = Callable[[Mapping[str, Scalar], str, Mapping[str, str]], None]

log = getLogger("hoptree")


class RehearsalConfig(msgspec.Struct, frozen=True):
    """The first values of a config; ``later`` are the last values of its schedules, if it has any."""

    values: dict[str, Scalar]
    later: dict[str, Scalar] = {}

    @property
    def kind(self) -> str:
        """The same for all configs that differ only in numbers."""
        return repr([(name, None if _is_number(value) else value) for name, value in sorted(self.values.items())])


@final
class Rehearsals:
    """Configs of which at least one has to pass, and the metrics (``goals``) that it has to report.

    ``probed`` is called once per platform with the values and the probe of each config that has passed, and the
    platform. ``layouts`` is called with the layouts that models can have. ``changing`` are configs with schedules,
    whose changes are tried.

    The workers that are ready first rehearse at the same time. Anything that differs between processes of one
    machine (the order of a set of strings, for example) shows in their probes.
    """

    def __init__(
        self,
        configs: Sequence[RehearsalConfig],
        goals: Sequence[str],
        probed: Probed = lambda _values, _probe, _platform: None,
        changing: Sequence[Config] = (),
        layouts: Callable[[LayoutOptions], None] = lambda _: None,
    ) -> None:
        self._layouts = layouts
        self._configs = configs
        self._changing = changing
        self._goals = goals
        self._probed = probed
        self._reported: set[tuple[str, str]] = set()  # platforms and values of probes
        self._parts: dict[tuple[str, str], Mapping[str, str]] = {}  # by node and values
        self._passed: Counter[str] = Counter()  # workers by node

    def first(self) -> Rehearse:
        """Return the rehearsal of every worker."""
        values, later = [each.values for each in self._configs], [each.later for each in self._configs]
        return Rehearse(values, later, changing=[dict(config) for config in self._changing])

    def other_kinds(self, passed: RehearsalResult) -> Rehearse | None:
        """Return a rehearsal of one config of each kind that was not tried yet; None if there is none."""
        tried = {RehearsalConfig(values).kind for values, _ in passed.probes}
        found: dict[str, RehearsalConfig] = {}
        for each in self._configs:
            if each.kind not in tried:
                found.setdefault(each.kind, each)
        chosen = list(found.values())
        if not chosen:
            return None
        return Rehearse([each.values for each in chosen], [each.later for each in chosen], all_kinds=True)

    def check(self, found: RehearsalResult) -> None:
        """Raise an error if no config can be trained, or a goal is not reported; else report the layouts."""
        check_rehearsal(self._goals, found)
        if found.layouts is not None:
            self._layouts(found.layouts)

    def wants_second(self, node: str) -> bool:
        """Return whether one process of a node has passed, and no second one was compared with it."""
        return self._passed[node] == 1

    def compare(self, node: str, platform: Mapping[str, str], found: RehearsalResult) -> None:
        """Report new probes, and raise an error if another process of the same node got different bits."""
        kind = identity("platform", dict(platform))
        refuse_not_reproducible(found)
        self._passed[node] += bool(found.parts)
        for values, probe in found.probes:
            config = repr(sorted(values.items()))
            if (kind, config) not in self._reported:
                self._reported.add((kind, config))
                self._probed(values, probe, platform)
            if found.parts:
                before = self._parts.setdefault((node, config), found.parts)
                differ = [name for name in {**before, **found.parts} if before.get(name) != found.parts.get(name)]
                if differ:
                    raise RefusedError(_process_difference(values, differ))


def check_rehearsal(goals: Sequence[str], found: RehearsalResult) -> None:
    """Raise an error if no config can be trained, or a goal is not reported; warn of hyperparameters never read."""
    refuse_not_reproducible(found)
    if found.layout_error:
        raise RefusedError(found.layout_error)
    metrics, reasons = found.metrics, found.reasons
    if found.unread:
        log.warning(
            "space: nothing reads %s, and no option of the optimizer has that name: it only changes the random "
            "numbers of trials; is it misspelt?",
            ", ".join(map(repr, found.unread)),
        )
    if reasons:
        more = len(reasons) - 1
        others = f"\n({more} other config{'s' if more > 1 else ''} failed as well)" if more else ""
        raise RefusedError(f"No config could be trained. First error:\n{reasons[0]}{others}")
    if found.change_error:
        raise RefusedError(f"nothing was trained: {found.change_error}")
    if not metrics:
        raise RefusedError(
            f"data: there is no validation data to compute {goals[0]!r} on; build the dataset with valid=0.2"
        )
    names = ", ".join(metrics)
    for goal in goals:
        if goal not in metrics:
            close = get_close_matches(goal, metrics, 1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            raise RefusedError(
                f"{goal!r} is to be optimized, but the trainer reports only {names}{meant}; give one of these as "
                "maximize= or minimize=, or add it to the trainer's metrics="
            )


def refuse_not_reproducible(found: RehearsalResult) -> None:
    """Raise an error if the hop test found that results would not be reproducible."""
    if found.refused:
        raise RefusedError(f"nothing was trained, since results would not be reproducible: {found.refused}")


def _process_difference(values: Mapping[str, Scalar], differ: Sequence[str]) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
    more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
    return (
        "nothing was trained, since results would not be reproducible: two worker processes of one machine trained "
        f"the same steps and got different bits, first in {', '.join(differ[:3])}{more} (with {shown}). Usual "
        "causes: the order of a set of strings or hash() of a string, which differ from process to process (sort "
        "the set, or use hashlib); a generator without a seed; the clock; the process ID; a file that one of "
        "them has written"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
