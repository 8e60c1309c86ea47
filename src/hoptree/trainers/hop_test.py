"""The hop test: the same steps with and without a hop, and with another model in between, give the same bits.

A state is all that moves from worker to worker. What a model remembers beside it (a buffer that is not persistent,
an attribute of an optimizer, a module that two models share) would make results depend on where a trial was trained
and on what else was, so it is found here, before anything is trained, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Trainer
from hoptree.trainers.errors import NotReproducibleError
from hoptree.trainers.probe import OTHER_SEED, ProbeReference, ProbeSteps
from hoptree.trainers.state_digests import Digests, differing, digests, metric_digests

SLOW = 0.3  # seconds of a unit, from which on the steps are as few as they can be
LARGE = 256 << 20  # bytes of a model, from which on as few models as possible are in memory
_NAMED = 3

_CAUSES = (
    "Usual causes: a generator without a seed (np.random.default_rng(), torch.Generator(), random.SystemRandom, "
    "os.urandom, uuid), the clock, id() or hash(), the order of a set, threads, memory that nobody has initialised "
    "(torch.empty), a global variable that training changes. Draw from the global generators of random, numpy or "
    "torch, which Hoptree seeds for every unit, or give a generator a seed that follows from the values."
)
_SHARED = (
    "Make new modules and tensors inside the function that builds the model, or copy what is loaded once: "
    "copy.deepcopy(BACKBONE)."
)
_CARRIED = (
    "Keep it where a state is taken from: a parameter, a buffer (register_buffer), the optimizer's state for a "
    "parameter, or get_extra_state and set_extra_state; or compute it anew at every step."
)


@final
class HopTest:
    """Repeats the steps of a reference in other ways; each method refuses one kind of difference."""

    def __init__(
        self, trainer: Trainer, steps: ProbeSteps, values: Mapping[str, Scalar], reference: ProbeReference
    ) -> None:
        self._trainer = trainer
        self._steps = steps
        self._values = values
        self._reference = reference
        self._again: Any = None  # the model that repeated the first unit

    def run(self, later: Mapping[str, Scalar] | None = None) -> None:
        """Raise ``NotReproducibleError`` for what differs; ``later`` are values that training comes to."""
        if self._reference.state is None or not self._reference.second:
            self._repeat()
            return
        if self._reference.warm_seconds > SLOW or self._reference.bytes > LARGE:
            self._hop(with_another=True)
        else:
            self._repeat()
            self._with_another()
            self._hop()
            self._set_back()
        if later and later != self._values:
            self._follow(later)

    def _repeat(self) -> None:
        """Build and train once more: what differs is not deterministic, or depends on what was trained before."""
        reference = self._reference
        again = self._again = self._steps.build(self._values)
        self._same(digests(self._trainer.dump(again)), reference.built, "when a model is built twice", again)
        self._steps.train(again, self._values, 0)
        if reference.state is not None:
            after = digests(self._trainer.dump(again))
            self._same(after, reference.first, "when a model is trained twice from the beginning", again)

    def _with_another(self) -> None:
        """Train a model while another one is trained, and evaluated, in the same process."""
        again, other = self._again, self._steps.build(self._values, OTHER_SEED)
        for number in range(2):
            self._steps.train(other, self._values, number, OTHER_SEED)
        self._steps.evaluate(again, self._values)
        self._steps.train(again, self._values, 1)
        found = digests(self._trainer.dump(again))
        self._same(found, self._reference.second, "when another model is trained in between", again, other)
        metrics = metric_digests(self._steps.evaluate(again, self._values))
        self._same(metrics, metric_digests(self._reference.metrics), "when a model is evaluated twice", again)

    def _hop(self, with_another: bool = False) -> None:
        """Load the state after the first unit into another model, and go on."""
        reference, trainer = self._reference, self._trainer
        assert reference.state is not None
        model = self._steps.build(self._values)
        self._same(digests(trainer.dump(model)), reference.built, "when a model is built twice", model)
        trainer.load(model, reference.state)
        held = dict(trainer.hidden_state(model))
        self._same(digests(trainer.dump(model)), reference.first, "when a state is loaded and dumped", model)
        other = None
        if with_another:
            other = self._steps.build(self._values, OTHER_SEED)
            self._steps.train(other, self._values, 0, OTHER_SEED)
        self._steps.train(model, self._values, 1)
        found = digests(trainer.dump(model))
        self._same(found, reference.second, "when a state hops to another model", model, other, held)

    def _set_back(self) -> None:
        """Load an earlier state into a model that was trained further, and train on."""
        model, reference = self._reference.model, self._reference
        assert reference.state is not None
        self._trainer.load(model, reference.state)
        held = dict(self._trainer.hidden_state(model))
        self._steps.train(model, self._values, 1)
        found = digests(self._trainer.dump(model))
        self._same(found, reference.second, "when a model is set back to an earlier state", held=held)

    def _follow(self, later: Mapping[str, Scalar]) -> None:
        """Let values change after a model was built: it has to be as if it had been built with them.

        What cannot be built, loaded or trained with them says nothing here: a trial that gets there says so.
        """
        reference, trainer = self._reference, self._trainer
        assert reference.state is not None
        found, arrays = [], []
        for values in (self._values, later):
            try:
                model = self._steps.build(values)
                trainer.load(model, reference.state)
                self._steps.train(model, later, 1)
            except (Exception, SystemExit):
                return
            state = trainer.dump(model)
            found.append(digests(state))
            arrays.append(state.arrays)
        # What is not an array of both may say how the model came here: an optimizer that was switched, for example.
        differ = [name for name in differing(*found) if all(name in each for each in arrays)]
        names = [name for name in later if later[name] != self._values.get(name)]
        if differ:
            changes = ", ".join(f"{name} from {self._values.get(name)!r} to {later[name]!r}" for name in names)
            raise NotReproducibleError(
                f"{', '.join(names)}: a value that changes after the model was built is not followed: {changes} "
                f"gives other bits than a model that is built with it, in {_listed(differ)}. Read the value at "
                "every step (a trainer of your own: unit.at(step, steps)), or use a constant, not a schedule"
            )

    def _same(
        self,
        found: Digests,
        expected: Digests,
        when: str,
        model: Any = None,
        other: Any = None,
        held: Mapping[str, str] | None = None,
    ) -> None:
        differ = differing(expected, found)
        if not differ:
            return
        shared = self._shared(model, other)
        hidden = [] if held is None else [n for n in differing(self._reference.held, held) if not _is_carried(n)]
        if shared:
            why = f"Two models share {_listed(shared)}. {_SHARED}"
        elif hidden:
            why = f"Not part of the state: {_listed(hidden)}. {_CARRIED}"
        elif held is not None:
            why = f"Something that a state does not carry makes a difference. {_CARRIED}"
        else:
            why = _CAUSES
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        raise NotReproducibleError(f"{when}, other bits come out, first in {_listed(differ)} (with {shown}). {why}")

    def _shared(self, model: Any, other: Any) -> list[str]:
        """Return the names of memory that two models have in common, and that training has changed."""
        models = [each for each in (self._reference.model, model, other) if each is not None]
        places = [self._trainer.memory(each) for each in models]
        if len(places) < 2:
            return []
        taken = {place for others in places[:-1] for place in others.values()}
        held, now = self._reference.held, self._trainer.hidden_state(models[-1])
        common = [name for name, place in places[-1].items() if place in taken]
        return [name for name in common if held.get(name) != now.get(name)]


def _is_carried(name: str) -> bool:
    return name.startswith("optimizer's ")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
