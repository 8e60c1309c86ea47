"""Comparison with a bundle: what a program trains here, what was trained there, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from hoptree.bundle.bundle import Bundle, BundledTrial
from hoptree.core.errors import WorkloadError
from hoptree.core.metrics import spelled
from hoptree.record.fresh_processes import train_in_fresh_processes
from hoptree.record.retrain import Retrainer

if TYPE_CHECKING:
    from hoptree.study.study import Study

# What may differ, from the likeliest reason for other bits to the least likely, and its effect.
REASONS: Final[dict[str, str]] = {
    "trainer": "other code trains something else",
    "data": "other data trains something else",
    "partitions": "partitions that are cut differently are visited in another order",
    "device": "another kind of device sums in another order",
    "threads": "another number of threads sums in another order",
    "torch": "another version of torch may compute in another order",
    "torch build": "another build of torch rounds differently",
    "torch kernels": "torch chose other kernels for this processor",
    "cpu flags": "for a processor with other instructions, libraries choose other kernels",
    "libraries": "another version of a library that the code uses may compute differently",
    "numpy": "another version of numpy may draw or round differently",
    "python": "another Python compiles code to other instructions, so the code cannot be compared",
    "platform": "another system has other mathematical functions",
    "hoptree": "another version of Hoptree may derive seeds or orders differently",
    "seed": "a bundle is retrained with its own seed, so this has no effect",
    "cpu": "another processor has no effect, unless its instructions differ",
}
EXPLAIN_NOTHING: Final = ("seed", "cpu")
_PARTS: Final = ("code", "libraries", "device")  # of a trainer's fingerprint


class Difference(msgspec.Struct, frozen=True):
    """Something that differs: its value there and here, and the effect that it can have."""

    what: str
    there: str
    here: str
    reason: str


class TrialComparison(msgspec.Struct, frozen=True):
    """A retrained trial: fingerprints and metrics, there and here."""

    trial: int
    stored: str
    trained: str
    metrics_there: dict[str, float | str]
    metrics_here: dict[str, float | str]

    @property
    def same(self) -> bool:
        """Whether both have the same bits."""
        return self.stored == self.trained


def differences(bundle: Bundle, study: Study) -> list[Difference]:
    """Return what differs from where the study was run, the likeliest reason for other bits first.

    If the study was run in several environments, compare with the most similar one.
    """
    there, here = bundle.about.spec, study.spec
    now = here.environments[-1]
    places = [
        {name: (then.get(name, "unknown"), now.get(name, "none")) for name in {**then, **now}}
        for then in there.environments
    ]
    place = min(places, key=lambda pairs: sum(a != b for a, b in pairs.values()), default={})
    fixed = {
        "trainer": (there.trainer, here.trainer),
        "data": (there.data, here.data),
        "seed": (str(there.seed), str(here.seed)),
        "partitions": (str(there.settings.partitions), str(here.settings.partitions)),
    }
    pairs = {name: pair for name, pair in _split_trainer({**fixed, **place}).items() if pair[0] != pair[1]}
    order = [*(name for name in REASONS if name in pairs), *sorted(pairs.keys() - REASONS.keys())]
    if "python" in pairs and len({version.rpartition(".")[0] for version in pairs["python"]}) > 1:
        order.sort(key=lambda name: name != "python")  # the code cannot be compared
    return [Difference(name, *pairs[name], REASONS.get(name, "it may change what libraries do")) for name in order]


def _split_trainer(pairs: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """If trainers differ but not in code, replace that by the reason: libraries, threads or device."""
    parts = {name: pairs[name] for name in _PARTS if pairs.get(name, ("unknown",))[0] != "unknown"}
    split = {name: pair for name, pair in pairs.items() if name not in _PARTS}
    there, here = (set(text.split()) for text in parts.get("libraries", ("", "")))
    changed = [
        " ".join(sorted(each for each in libraries if each.rpartition("-")[0] not in split))
        for libraries in (there - here, here - there)
    ]
    split |= {"device": parts["device"]} if "device" in parts else {}
    split |= {"libraries": (changed[0] or "none", changed[1] or "none")} if any(changed) else {}
    others = ("libraries", "device", "threads", "torch")
    if len(set(parts.get("code", (1, 2)))) == 1 and any(len(set(split.get(name, ""))) > 1 for name in others):
        del split["trainer"]
    return split


def to_compare(bundle: Bundle, trial: int | None) -> list[BundledTrial]:
    """Return the trials to compare: all complete ones with a fingerprint, or the requested one."""
    trials = bundle.about.trials
    if trial is None:
        found = [each for each in trials if each.fingerprint]
        if not found:
            raise WorkloadError(
                "bundle: it has no complete trial with a stored state; expected at least one to compare"
            )
        return found
    if not 0 <= trial < len(trials) or not trials[trial].fingerprint:
        usable = ", ".join(str(each.number) for each in trials if each.fingerprint) or "none"
        raise WorkloadError(
            f"trial {trial}: it cannot be compared; expected a complete trial with a stored state: {usable}"
        )
    return [trials[trial]]


def compare(bundle: Bundle, study: Study, trial: int | None = None) -> Iterator[TrialComparison]:
    """Retrain trials of a bundle, each in a fresh process, with the study's code and data."""
    spec = bundle.about.spec
    chosen = to_compare(bundle, trial)
    if study.data.partitions != spec.settings.partitions:
        raise WorkloadError(
            f"data: {study.data.partitions} partitions here, {spec.settings.partitions} there; "
            "expected the same data in the same partitions"
        )
    study.data.check()
    retrainer = Retrainer(bundle.record, study.trainer, study.data, spec.seed)
    trials = {each.number: bundle.trial(each.number) for each in chosen}
    by_number = {each.number: each for each in chosen}
    for number, result in train_in_fresh_processes(retrainer, trials):
        each = by_number[number]
        yield TrialComparison(
            number, each.fingerprint, result.fingerprint, each.metrics, {**spelled(result.metrics)}
        )
