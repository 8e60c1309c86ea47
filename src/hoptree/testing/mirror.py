"""The contract of a mirror, as tests: an implementer gets them for one fixture.

    import pytest
    from hoptree.testing import MirrorContract

    class TestMine(MirrorContract):
        @pytest.fixture
        def mirror(self, tmp_path):
            return MirrorCase(lambda: Mine(tmp_path), lambda: read(tmp_path))

The fixture opens the mirror of one study, as often as it is asked to, and reads back what the other program has
when all mirrors are closed: for each trial, by number, its state and the metric ``loss`` by epoch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, ClassVar, NamedTuple

from hoptree.core.events import Metrics
from hoptree.core.schedules import Config, linear
from hoptree.mirror import Mirror, TrialSnapshot

METRIC = "loss"


class MirroredTrial(NamedTuple):
    """A trial as read back from the other program: its state, and its losses by epoch."""

    state: str
    losses: dict[int, float]


class MirrorCase(NamedTuple):
    """Opens a mirror of one study, and reads back its trials by number."""

    open: Callable[[], Mirror]
    read: Callable[[], Mapping[int, MirroredTrial]]


class MirrorContract:
    """The contract of every mirror; a subclass defines the fixture ``mirror`` and may set the attributes below."""

    space: ClassVar[Config] = {"lr": 0.01, "width": 8}
    """A config of the study's trials, which must fit the space that ``open`` uses."""

    reopens = True
    """Whether a finished trial can be reopened."""

    def test_trials_are_shown_with_state_and_curve(self, mirror: MirrorCase) -> None:
        """Whatever state they are in, and however they are sorted."""
        trials = [
            self.trial(0, "complete", 0.5, 0.25),
            self.trial(1, "stopped", 0.75),
            self.trial(2, "failed", error="ValueError: no"),
            self.trial(3, "running", 0.5),
            self.trial(4, "running"),
        ]
        with closing(mirror.open()) as opened:
            opened.show(trials[::-1])
        self._compare(mirror, trials)

    def test_what_is_shown_again_changes_nothing(self, mirror: MirrorCase) -> None:
        """With the same mirror, and with another one: studies are mirrored repeatedly."""
        trials = [self.trial(0, "complete", 0.5, 0.25), self.trial(1, "failed", 0.5), self.trial(2, "running", 0.5)]
        for _ in range(2):
            with closing(mirror.open()) as opened:
                opened.show(trials)
                opened.show(trials)
            self._compare(mirror, trials)

    def test_nothing_new_is_nothing_to_do(self, mirror: MirrorCase) -> None:
        """No trials, or only some of them: the others stay as they are."""
        trials = [self.trial(0, "complete", 0.5), self.trial(1, "running")]
        with closing(mirror.open()) as opened:
            opened.show([])
            opened.show(trials)
            opened.show([])
        with closing(mirror.open()) as opened:
            opened.show(trials[1:])
        self._compare(mirror, trials)

    def test_step_by_step_is_as_at_once(self, mirror: MirrorCase) -> None:
        """Trials come one by one and report epoch by epoch, with and without opening the mirror anew."""
        order = random.Random(0)
        now = {number: self.trial(number, "running") for number in range(3)}
        opened = mirror.open()
        try:
            for trial in now.values():
                opened.show([trial])
            for step in range(12):
                number = order.randrange(3)
                losses = [metrics[METRIC] for metrics in now[number].curve.values()]
                now[number] = self.trial(number, "running", *losses, order.random())
                opened.show([now[number]])
                if step % 5 == 4:
                    opened.close()
                    opened = mirror.open()
            endings = {0: "complete", 1: "stopped", 2: "failed"}
            for number, state in endings.items():
                losses = [metrics[METRIC] for metrics in now[number].curve.values()]
                now[number] = self.trial(number, state, *losses, error="why" if state == "failed" else "")
            opened.show(list(now.values()))
        finally:
            opened.close()
        self._compare(mirror, list(now.values()))

    def test_a_trial_that_had_ended_goes_on(self, mirror: MirrorCase) -> None:
        """A user extends it: it runs again, and ends again."""
        if not self.reopens:
            return
        with closing(mirror.open()) as opened:
            opened.show([self.trial(0, "complete", 0.5)])
            opened.show([self.trial(0, "running", 0.5, 0.4)])
        self._compare(mirror, [self.trial(0, "running", 0.5, 0.4)])
        with closing(mirror.open()) as opened:
            opened.show([self.trial(0, "complete", 0.5, 0.4, 0.3)])
        self._compare(mirror, [self.trial(0, "complete", 0.5, 0.4, 0.3)])

    def test_it_bears_any_numbers_and_texts(self, mirror: MirrorCase) -> None:
        """NaN, infinity, schedules, None, long errors in any language: they must not stop training."""
        config: Config = {
            **self.space,
            "schedule": linear(0.1, 0.0, over=3),
            "none": None,
            "flag": True,
            "text": "é",
        }
        curve: dict[int, Metrics] = {1: {METRIC: math.nan, "other": math.inf}, 2: {METRIC: 0.5, "other": -math.inf}}
        trials = [
            TrialSnapshot(0, config, "running", curve),
            TrialSnapshot(1, config, "failed", {}, "Fehler: ✗ \n" * 20_000),
            TrialSnapshot(2, config, "complete", {2: {METRIC: 0.5}, 10: {METRIC: 0.25}}),
        ]
        with closing(mirror.open()) as opened:
            opened.show(trials)
        found = mirror.read()
        assert sorted(found) == [0, 1, 2], f"the trials {sorted(found)} are there, expected 0, 1 and 2"
        assert found[2].losses == {2: 0.5, 10: 0.25}, f"the losses {found[2].losses}, expected epochs 2 and 10"

    def test_a_mirror_that_showed_nothing_closes(self, mirror: MirrorCase) -> None:
        """A study may be rejected after its mirror was opened."""
        mirror.open().close()
        with closing(mirror.open()) as opened:
            opened.show([self.trial(0, "running", 0.5)])
        self._compare(mirror, [self.trial(0, "running", 0.5)])

    # --- inside -----------------------------------------------------------------------------------------

    def trial(self, number: int, state: Any, *losses: float, error: str = "") -> TrialSnapshot:
        """Return a trial that reported these losses after its first epochs."""
        curve = {epoch: {METRIC: loss} for epoch, loss in enumerate(losses, start=1)}
        return TrialSnapshot(number, self.space, state, curve, error)

    def _compare(self, mirror: MirrorCase, trials: list[TrialSnapshot]) -> None:
        expected = {
            trial.number: MirroredTrial(trial.state, {epoch: found[METRIC] for epoch, found in trial.curve.items()})
            for trial in trials
        }
        found = dict(mirror.read())
        for number in expected.keys() | found.keys():
            there, wanted = found.get(number), expected.get(number)
            assert there == wanted, f"trial {number} is there as {there}, expected {wanted}"
