"""What studies come to when nothing disturbs them, and how another outcome differs from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Trial: TypeAlias = dict[str, Any]


class Reference(NamedTuple):
    """The trials of an undisturbed study in order, and how many units it takes."""

    trials: list[Trial]
    units: int

    def of(self, acts: list[str]) -> Reference:
        """Return the part that has these acts: what a trial comes to depends on its own config only."""
        trials = [trial for trial in self.trials if trial["config"]["act"] in acts]
        return Reference(trials, self.units * len(trials) // len(self.trials))


class Differences(NamedTuple):
    """Where an outcome is another than the reference's."""

    silent: list[str]  # another result, without an error
    failed: list[str]  # trials that ended otherwise
    open: bool  # some trials have not ended: the study continues


def read_outcome(folder: Path, study: str) -> list[Trial] | None:
    """Return what a program wrote of a study's trials; None if it did not get there."""
    file = folder / f"{study}.outcome.json"
    return list(json.loads(file.read_text())["trials"]) if file.exists() else None


def compare(found: list[Trial], reference: Reference, free: dict[str, set[str]]) -> Differences:
    """Compare trial by trial; ``free`` are endings that trials with an act may have besides the reference's."""
    silent, failed, unfinished = [], [], len(found) < len(reference.trials)
    if len(found) > len(reference.trials):
        silent.append(f"{len(found)} trials, expected {len(reference.trials)}")
    for number, (trial, expected) in enumerate(zip(found, reference.trials, strict=False)):
        act = trial["config"]["act"]
        if trial["config"] != expected["config"]:
            silent.append(f"trial {number} has the config {trial['config']}, expected {expected['config']}")
        elif trial["ending"] == "running":
            unfinished = True
        elif trial["ending"] in free.get(act, ()) and trial["ending"] != expected["ending"]:
            if not trial["error"]:
                failed.append(f"trial {number} ({act}) is {trial['ending']} without a reason")
            elif trial["error_length"] > 1_000_000:
                failed.append(f"trial {number} ({act}) keeps a reason of {trial['error_length']:,} characters")
        elif act in free and expected["ending"] not in free[act]:
            failed.append(f"trial {number} ({act}) is {trial['ending']}, expected {' or '.join(free[act])}")
        elif trial["ending"] != expected["ending"]:
            reason = trial["error"].strip().splitlines()[-1][:200] if trial["error"].strip() else "no reason"
            failed.append(f"trial {number} is {trial['ending']}, expected {expected['ending']}: {reason}")
        else:
            silent += [f"trial {number}: {text}" for text in _differences(trial, expected)]
    return Differences(silent, failed, unfinished)


def _differences(trial: Trial, expected: Trial) -> list[str]:
    """Compare two trials that ended in the same state; an injected act caused a loss that is not a number."""
    found = []
    if trial["fingerprint"] != expected["fingerprint"]:
        found.append(f"its fingerprint is {trial['fingerprint'][:16]}, expected {expected['fingerprint'][:16]}")
    for epoch in sorted({*trial["curve"], *expected["curve"]}, key=int):
        here, there = (which["curve"].get(epoch, {}).get("loss", "none") for which in (trial, expected))
        if here not in (there, "nan"):
            found.append(f"its loss after epoch {epoch} is {here}, expected {there}")
    return found
