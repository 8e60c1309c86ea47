"""The hop test: the same steps give the same bits with and without a hop, and with another model in between.

Only states move from worker to worker. Anything that a model remembers outside its state (a non-persistent buffer,
an attribute of an optimizer, a module that two models share) would make results depend on where a trial was
trained, and on what else was trained there. This test finds and names it before training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Trainer
from hoptree.trainers.errors import NotReproducibleError
from hoptree.trainers.probe import OTHER_SEED, ProbeReference, ProbeSteps
from hoptree.trainers.state_digests import Digests, differing, digests, metric_digests

SLOW = 0.3  # run as few steps as possible if a unit takes more seconds than this
LARGE = 256 << 20  # keep as few models in memory as possible if a model has more bytes than this
_NAMED = 3

_CAUSES = (
    "Usual causes: an unseeded generator (np.random.default_rng(), torch.Generator(), random.SystemRandom, "
    "os.urandom, uuid), the clock, id() or hash(), the order of a set, threads, uninitialized memory "
    "(torch.empty), a global variable that training changes. Use the global generators of random, numpy or "
    "torch, which Hoptree seeds for every unit, or seed your generator from the values."
)
_SHARED = (
    "Create modules and tensors inside the function that builds the model, or copy what is loaded once: "
    "copy.deepcopy(BACKBONE)."
)
_KEEP_IN_STATE = (
    "Keep it where the state includes it: a parameter, a buffer (register_buffer), the optimizer's state for a "
    "parameter, or get_extra_state and set_extra_state; or recompute it at every step."
)


@final
class HopTest:
    """Repeats the steps of a reference in other ways; each method checks for one kind of difference."""

    def __init__(
        self, trainer: Trainer, steps: ProbeSteps, values: Mapping[str, Scalar], reference: ProbeReference
    ) -> None:
        self._trainer = trainer
        self._steps = steps
        self._values = values
        self._reference = reference
        self._repeated: Any = None  # the model that repeated the first unit

    def run(self, later: Mapping[str, Scalar] | None = None) -> None:
        """Raise ``NotReproducibleError`` if bits differ; ``later`` are values that training reaches later."""
        if self._reference.state is None or not self._reference.second:
            self._repeat()
            return
        if self._reference.warm_seconds > SLOW or self._reference.bytes > LARGE:
            self._hop(with_another=True)
        else:
            self._repeat()
            self._with_another()
            self._hop()
            self._rewind()
        if later and later != self._values:
            self._check_followed(later)

    def _repeat(self) -> None:
        """Build and train again: a difference is nondeterminism, or depends on what was trained before."""
        reference = self._reference
        repeated = self._repeated = self._steps.build(self._values)
        self._check_equal(
            digests(self._trainer.dump(repeated)), reference.built, "when a model is built twice", repeated
        )
        self._steps.train(repeated, self._values, 0)
        if reference.state is not None:
            after = digests(self._trainer.dump(repeated))
            self._check_equal(after, reference.first, "when a model is trained twice from the beginning", repeated)

    def _with_another(self) -> None:
        """Train a model while another one is trained and evaluated in the same process."""
        repeated, other = self._repeated, self._steps.build(self._values, OTHER_SEED)
        for number in range(2):
            self._steps.train(other, self._values, number, OTHER_SEED)
        self._steps.evaluate(repeated, self._values)
        self._steps.train(repeated, self._values, 1)
        found = digests(self._trainer.dump(repeated))
        self._check_equal(
            found, self._reference.second, "when another model is trained in between", repeated, other
        )
        metrics = metric_digests(self._steps.evaluate(repeated, self._values))
        self._check_equal(
            metrics, metric_digests(self._reference.metrics), "when a model is evaluated twice", repeated
        )

    def _hop(self, with_another: bool = False) -> None:
        """Load the state after the first unit into another model, and continue."""
        reference, trainer = self._reference, self._trainer
        assert reference.state is not None
        model = self._steps.build(self._values)
        self._check_equal(digests(trainer.dump(model)), reference.built, "when a model is built twice", model)
        trainer.load(model, reference.state)
        contents = dict(trainer.hidden_state(model))
        self._check_equal(digests(trainer.dump(model)), reference.first, "when a state is loaded and dumped", model)
        other = None
        if with_another:
            other = self._steps.build(self._values, OTHER_SEED)
            self._steps.train(other, self._values, 0, OTHER_SEED)
        self._steps.train(model, self._values, 1)
        found = digests(trainer.dump(model))
        self._check_equal(found, reference.second, "when a state hops to another model", model, other, contents)

    def _rewind(self) -> None:
        """Load an earlier state into a model that was trained further, and continue from it."""
        model, reference = self._reference.model, self._reference
        assert reference.state is not None
        self._trainer.load(model, reference.state)
        contents = dict(self._trainer.hidden_state(model))
        self._steps.train(model, self._values, 1)
        found = digests(self._trainer.dump(model))
        self._check_equal(
            found, reference.second, "when a model is set back to an earlier state", contents=contents
        )

    def _check_followed(self, later: Mapping[str, Scalar]) -> None:
        """Check that a model whose values change equals a model that was built with the new values.

        Ignore values that cannot be built, loaded or trained: the trial that reaches them reports the error.
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
        # Other names may depend on the history of the model: a switched optimizer, for example.
        differ = [name for name in differing(*found) if all(name in each for each in arrays)]
        names = [name for name in later if later[name] != self._values.get(name)]
        if differ:
            changes = ", ".join(f"{name} from {self._values.get(name)!r} to {later[name]!r}" for name in names)
            raise NotReproducibleError(
                f"{', '.join(names)}: the model ignores a value that changes after it was built: {changes} gives "
                f"other bits than a model that is built with it, in {_listed(differ)}. Read the value at every "
                "step (in your own trainer: unit.at(step, steps)), or use a constant instead of a schedule"
            )

    def _check_equal(
        self,
        found: Digests,
        expected: Digests,
        when: str,
        model: Any = None,
        other: Any = None,
        contents: Mapping[str, str] | None = None,
    ) -> None:
        differ = differing(expected, found)
        if not differ:
            return
        shared = self._shared(model, other)
        hidden = (
            []
            if contents is None
            else [n for n in differing(self._reference.contents, contents) if not _is_in_state(n)]
        )
        if shared:
            why = f"Two models share {_listed(shared)}. {_SHARED}"
        elif hidden:
            why = f"Not part of the state: {_listed(hidden)}. {_KEEP_IN_STATE}"
        elif contents is not None:
            why = f"The result depends on something that is not in the state. {_KEEP_IN_STATE}"
        else:
            why = _CAUSES
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        raise NotReproducibleError(f"bits differ {when}, first in {_listed(differ)} (with {shown}). {why}")

    def _shared(self, model: Any, other: Any) -> list[str]:
        """Return the names of memory that two models share and that training has changed."""
        models = [each for each in (self._reference.model, model, other) if each is not None]
        addresses = [self._trainer.memory(each) for each in models]
        if len(addresses) < 2:
            return []
        others_addresses = {address for others in addresses[:-1] for address in others.values()}
        contents, now = self._reference.contents, self._trainer.hidden_state(models[-1])
        common = [name for name, address in addresses[-1].items() if address in others_addresses]
        return [name for name in common if contents.get(name) != now.get(name)]


def _is_in_state(name: str) -> bool:
    return name.startswith("optimizer's ")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
