"""What a backend has rehearsed before anything is trained, and what it makes of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from logging import getLogger
from typing import TypeAlias, final

import msgspec

from hoptree.core.errors import RefusedError
from hoptree.core.schedules import Config, Scalar
from hoptree.worker.messages import RehearsalResult, Rehearse

Probed: TypeAlias = Callable[[Mapping[str, Scalar], str], None]

log = getLogger("hoptree")


class RehearsalConfig(msgspec.Struct, frozen=True):
    """The values that a config begins with; ``later`` are those that its schedules come to, if it has some."""

    values: dict[str, Scalar]
    later: dict[str, Scalar] = {}

    @property
    def kind(self) -> str:
        """What it has in common with configs that differ in numbers only."""
        return repr([(name, None if _is_number(value) else value) for name, value in sorted(self.values.items())])


@final
class Rehearsals:
    """Configs of which some have to pass, with the metrics that must come out; ``probed`` is told every probe.

    ``changing`` are configs with schedules, of which the changes are tried.

    The workers that are ready first rehearse at the same time. What differs between processes of one machine (the
    order of a set of texts, for example) shows in their probes.
    """

    def __init__(
        self,
        configs: Sequence[RehearsalConfig],
        goals: Sequence[str],
        probed: Probed = lambda _v, _p: None,
        changing: Sequence[Config] = (),
    ) -> None:
        self._configs = configs
        self._changing = changing
        self._goals = goals
        self._probed = probed
        self._probes: dict[str, str] = {}
        self._parts: dict[tuple[str, str], Mapping[str, str]] = {}  # by node and values
        self._answered: Counter[str] = Counter()  # workers that have passed, by node

    def first(self) -> Rehearse:
        """Return what every worker is to try."""
        values, later = [each.values for each in self._configs], [each.later for each in self._configs]
        return Rehearse(values, later, changing=[dict(config) for config in self._changing])

    def other_kinds(self, passed: RehearsalResult) -> Rehearse | None:
        """Return one config of each kind that has not been tried when some have passed; None without any."""
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
        """Refuse what cannot be trained, or what would not be reported."""
        check_rehearsal(self._goals, found)

    def wants_second(self, node: str) -> bool:
        """Return whether one process of a node has passed, and none has shown yet that it gives the same bits."""
        return self._answered[node] == 1

    def compare(self, node: str, found: RehearsalResult) -> None:
        """Tell what was probed, and refuse what comes out otherwise in another process of the same machine."""
        refuse_not_reproducible(found)
        self._answered[node] += bool(found.parts)
        for values, probe in found.probes:
            named = repr(sorted(values.items()))
            if named not in self._probes:
                self._probes[named] = probe
                self._probed(values, probe)
            if found.parts:
                before = self._parts.setdefault((node, named), found.parts)
                differ = [name for name in {**before, **found.parts} if before.get(name) != found.parts.get(name)]
                if differ:
                    raise RefusedError(_other_process(values, differ))


def check_rehearsal(goals: Sequence[str], found: RehearsalResult) -> None:
    """Refuse what no config can be trained with, or what would not be reported; warn of what is varied in vain."""
    refuse_not_reproducible(found)
    metrics, reasons = found.metrics, found.reasons
    if found.unread:
        log.warning(
            "space: nothing asks for %s, and no option of the optimizer has that name: it only gives trials other "
            "random numbers; is it misspelt?",
            ", ".join(map(repr, found.unread)),
        )
    if reasons:
        more = len(reasons) - 1
        others = f"\n({more} other config{'s' if more > 1 else ''} failed as well)" if more else ""
        raise RefusedError(f"nothing was trained, since no config that was tried can be:\n{reasons[0]}{others}")
    if found.refused_change:
        raise RefusedError(f"nothing was trained: {found.refused_change}")
    if not metrics:
        raise RefusedError(
            f"data: there is no validation data to compute {goals[0]!r} on; build the dataset with valid=0.2"
        )
    names = ", ".join(metrics)
    for goal in goals:
        if goal not in metrics:
            close = get_close_matches(goal, metrics, 1)
            meant = f" (was {close[0]!r} meant?)" if close else ""
            raise RefusedError(
                f"{goal!r} is to be optimized, but the trainer reports {names} only{meant}; give one of these as "
                "maximize= or minimize=, or add it to the trainer's metrics="
            )


def refuse_not_reproducible(found: RehearsalResult) -> None:
    """Refuse what the hop test has found."""
    if found.refused:
        raise RefusedError(f"nothing was trained, since results would not be reproducible: {found.refused}")


def _other_process(values: Mapping[str, Scalar], differ: Sequence[str]) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
    more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
    return (
        "nothing was trained, since results would not be reproducible: two worker processes of one machine trained "
        f"the same steps, and other bits came out, first in {', '.join(differ[:3])}{more} (with {shown}). Usual "
        "causes: the order of a set of strings or hash() of a string, which differ from process to process (sort "
        "the set, or use hashlib); a generator without a seed; the clock; the process number; a file that one of "
        "them has written"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
