"""Comparing with a bundle: what a program trains here and what was trained there, and why they differ."""

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

# What may differ, from the likeliest reason for other bits to the least likely, with what it would explain.
REASONS: Final[dict[str, str]] = {
    "trainer": "another code trains something else",
    "data": "other data trains something else",
    "partitions": "another cut of the data is visited in another order",
    "device": "another kind of device adds up in another order",
    "threads": "another number of threads adds up in another order",
    "torch": "another version of torch may compute in another order",
    "torch build": "another build of torch rounds differently",
    "torch kernels": "torch chose other kernels for this processor",
    "cpu flags": "another processor has other instructions, for which libraries choose other kernels",
    "libraries": "another version of a library that the code uses may compute in another way",
    "numpy": "another version of numpy may draw or round differently",
    "python": "another Python compiles code to other instructions, so that nobody can say if it is the same code",
    "platform": "another system has other mathematical functions",
    "hoptree": "another Hoptree may derive seeds or orders in another way",
    "seed": "a bundle is trained with the seed that is in it, whatever the program says",
    "cpu": "another processor by itself explains nothing, unless its instructions differ",
}
EXPLAIN_NOTHING: Final = ("seed", "cpu")
_PARTS: Final = ("code", "libraries", "device")  # of a trainer's fingerprint


class Difference(msgspec.Struct, frozen=True):
    """Something that is not as it was: its values there and here, and what it would explain."""

    what: str
    there: str
    here: str
    reason: str


class TrialComparison(msgspec.Struct, frozen=True):
    """A trial trained again: fingerprints and metrics, there and here."""

    trial: int
    stored: str
    trained: str
    metrics_there: dict[str, float | str]
    metrics_here: dict[str, float | str]

    @property
    def same(self) -> bool:
        """Whether the same bits came out."""
        return self.stored == self.trained


def differences(bundle: Bundle, study: Study) -> list[Difference]:
    """Return what is not as it was where the study was run, the likeliest reason for other bits first.

    A study that was run in several places is compared with the one that is most like this.
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
    pairs = {name: pair for name, pair in _told_apart({**fixed, **place}).items() if pair[0] != pair[1]}
    order = [*(name for name in REASONS if name in pairs), *sorted(pairs.keys() - REASONS.keys())]
    if "python" in pairs and len({version.rpartition(".")[0] for version in pairs["python"]}) > 1:
        order.sort(key=lambda name: name != "python")  # the code cannot be compared
    return [Difference(name, *pairs[name], REASONS.get(name, "it may change what libraries do")) for name in order]


def _told_apart(pairs: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Say by its own name why trainers differ where the code is the same: libraries, threads or the device."""
    parts = {name: pairs[name] for name in _PARTS if pairs.get(name, ("unknown",))[0] != "unknown"}
    told = {name: pair for name, pair in pairs.items() if name not in _PARTS}
    there, here = (set(text.split()) for text in parts.get("libraries", ("", "")))
    changed = [
        " ".join(sorted(each for each in libraries if each.rpartition("-")[0] not in told))
        for libraries in (there - here, here - there)
    ]
    told |= {"device": parts["device"]} if "device" in parts else {}
    told |= {"libraries": (changed[0] or "none", changed[1] or "none")} if any(changed) else {}
    others = ("libraries", "device", "threads", "torch")
    if len(set(parts.get("code", (1, 2)))) == 1 and any(len(set(told.get(name, ""))) > 1 for name in others):
        del told["trainer"]
    return told


def to_compare(bundle: Bundle, trial: int | None) -> list[BundledTrial]:
    """Return the trials that can be compared: complete ones with a fingerprint, or the one that is asked for."""
    trials = bundle.about.trials
    if trial is None:
        found = [each for each in trials if each.fingerprint]
        if not found:
            raise WorkloadError("bundle: no trial in it was complete and stored; expected at least one to compare")
        return found
    if not 0 <= trial < len(trials) or not trials[trial].fingerprint:
        usable = ", ".join(str(each.number) for each in trials if each.fingerprint) or "none"
        raise WorkloadError(
            f"trial {trial}: not to be compared; expected one that was complete and stored: {usable}"
        )
    return [trials[trial]]


def compare(bundle: Bundle, study: Study, trial: int | None = None) -> Iterator[TrialComparison]:
    """Train trials of a bundle again, each alone in a fresh process, with the study's code and data."""
    spec = bundle.about.spec
    chosen = to_compare(bundle, trial)
    if study.data.partitions != spec.settings.partitions:
        raise WorkloadError(
            f"data: {study.data.partitions} partitions here, {spec.settings.partitions} there; "
            "expected the same data, cut the same way"
        )
    study.data.check()
    soloist = Retrainer(bundle.record, study.trainer, study.data, spec.seed)
    trials = {each.number: bundle.trial(each.number) for each in chosen}
    by_number = {each.number: each for each in chosen}
    for number, result in train_in_fresh_processes(soloist, trials):
        each = by_number[number]
        yield TrialComparison(
            number, each.fingerprint, result.fingerprint, each.metrics, {**spelled(result.metrics)}
        )
