"""``Functions``: the three functions of the Cerebro paper, for user-defined training loops.

They are ``input_fn(columns) -> data``, ``model_fn(config) -> (model, optimizer)`` and
``train_fn(data, model, optimizer, config) -> metrics``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, final

from hoptree.core.schedules import Scalar
from hoptree.identity.fingerprints import code_alone, fingerprint
from hoptree.trainers import torch_contents
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged, TrainerError, user_error
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.plain_numbers import as_number
from hoptree.trainers.torch_build import torch_platform
from hoptree.trainers.torch_frozen import Module, Optimizer, dtype_and_device, frozen
from hoptree.trainers.torch_loop import clear
from hoptree.trainers.torch_model import TorchModel, build_module, check_module
from hoptree.trainers.torch_optimizers import TunedOptimizer
from hoptree.trainers.torch_rebuilt import ModelRebuilder
from hoptree.trainers.torch_session import session

_VALIDATION = -1  # used as the partition number of validation data


@final
class Functions(Trainer):
    """Trains with a user-defined loop, which gets the values at the start of each unit.

    ``train_fn`` makes one pass over the data; ``hp.advance(fraction)`` moves on to the values within the pass.
    Values that change the module that ``model_fn`` returns cannot change later, unless ``on_values(module, hp)``
    reads them. For validation ``train_fn`` is called with every parameter frozen, in evaluation mode, and with
    ``None`` as the optimizer. What ``input_fn`` returns is cached in memory (``cache``) and must not be modified.
    """

    def __init__(
        self,
        input_fn: Callable[[Columns], Any],
        model_fn: Callable[[HyperParameters], tuple[Module, Optimizer]],
        train_fn: Callable[[Any, Module, Optimizer | None, HyperParameters], Mapping[str, Any]],
        *,
        on_values: Callable[[Module, HyperParameters], Any] | None = None,
        cache: bool = True,
        threads: int = 1,
    ) -> None:
        for name, function in (("input_fn", input_fn), ("model_fn", model_fn), ("train_fn", train_fn)):
            if not callable(function):
                raise TrainerError(f"{name}: {function!r}; expected a function")
        if on_values is not None and not callable(on_values):
            raise TrainerError(f"on_values: {on_values!r}; expected a function (module, hp)")
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise TrainerError(f"threads: {threads!r}; expected a whole number, 1 or more")
        self._input_fn = input_fn
        self._model_fn = model_fn
        self._train_fn = train_fn
        self._on_values = on_values
        self._cache: dict[int, tuple[Columns, Any]] | None = {} if cache else None
        self.threads = threads

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": None if self._cache is None else {}}

    @property
    def fingerprint(self) -> str:
        """A hash of the three functions as they are now (runs may differ), the threads, and torch's version."""
        return fingerprint({**self._code, "threads": self.threads, "torch": version("torch")})

    @property
    def fingerprint_parts(self) -> dict[str, str]:
        """The code alone, and the libraries that it uses."""
        code, libraries = code_alone(self._code)
        return {"code": code, "libraries": " ".join(libraries)}

    def platform(self) -> dict[str, str]:
        """Return the machine's platform, torch's build and kernels, and the kind of device."""
        return {**super().platform(), **torch_platform(str(dtype_and_device()[1]))}

    @property
    def _code(self) -> dict[str, object]:
        functions: dict[str, object] = {
            "input_fn": self._input_fn,
            "model_fn": self._model_fn,
            "train_fn": self._train_fn,
        }
        return functions if self._on_values is None else {**functions, "on_values": self._on_values}

    def build(self, values: Mapping[str, Scalar], seed: int) -> TorchModel:
        """Call ``model_fn``."""
        with self._session(seed, fill=True):
            hp = HyperParameters(values, "model_fn")
            module, optimizer = self._call_model_fn(hp)
            check_module(module, "model_fn")
            rebuilder = ModelRebuilder(module, self._call_model_fn, values, hp.reads)
            tuned = TunedOptimizer(rebuilder.optimizer, values, hp.reads, optimizer)
            model = TorchModel(module, tuned, hp, hp.reads, self._on_values)
            rebuilder.followed = model.followed
            return model

    def train(self, model: TorchModel, data: Columns, unit: UnitSpec) -> None:
        """Call ``train_fn`` once; raise ``Diverged`` if it returns a ``loss`` that is not finite."""
        prepared = self._prepare(data, unit.partition)
        values = unit.at(0, 1)
        with self._session(unit.seed):
            model.apply(values)
            model.module.train()
            clear(model)
            try:
                metrics = self._call_train_fn(
                    prepared, model, model.tuned.optimizer, values, _advance_function(model, unit)
                )
            finally:
                clear(model)
        if not math.isfinite(metrics.get("loss", 0.0)):
            raise Diverged(f"train_fn: it returned the loss {metrics['loss']} for unit {unit.unit}")

    def evaluate(self, model: TorchModel, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        """Call ``train_fn`` with the model frozen and no optimizer, and return its metrics."""
        prepared = self._prepare(data, _VALIDATION)
        model.hp.set(values)
        with self._session(0), frozen(model.module):
            return self._call_train_fn(prepared, model, None, values)

    def dump(self, model: TorchModel) -> ModelState:
        """Return the state; its arrays are views of the model's tensors."""
        return model.dump()

    def load(self, model: TorchModel, state: ModelState) -> None:
        """Copy a state into the cached tensors."""
        model.load(state)

    def unread(self, model: TorchModel, values: Mapping[str, Scalar]) -> list[str]:
        """Return the names that no function has read and that are not options of the optimizer."""
        return model.unread(values)

    def check_values(self, model: TorchModel, values: Mapping[str, Scalar]) -> None:
        """Apply the values to the model."""
        with self._session(0):
            model.apply(values)

    def hidden_state(self, model: TorchModel) -> Mapping[str, str]:
        """Return digests of the contents of the module and the optimizer, by name."""
        return torch_contents.contents(model.module, model.tuned.optimizer)

    def memory(self, model: TorchModel) -> Mapping[str, int]:
        """Return the addresses of the module's and the optimizer's tensors, by name."""
        return torch_contents.memory(model.module, model.tuned.optimizer)

    def export(self, model: TorchModel) -> Module:
        """Return the module, ready for predictions."""
        return model.module.eval()

    def _session(self, seed: int, fill: bool = False) -> Any:
        dtype, device = dtype_and_device()
        return session(seed, threads=self.threads, dtype=dtype, device=device, fill=fill)

    def _prepare(self, data: Columns, partition: int) -> Any:
        cached = self._cache.get(partition) if self._cache is not None else None
        if cached is not None and _same(cached[0], data):
            return cached[1]
        # The seed depends only on the partition, so it does not matter when and how often data is prepared.
        with self._session(partition % 2**32):
            try:
                prepared = self._input_fn(data)
            except Exception as error:
                columns = ", ".join(f"{name} {column.shape}" for name, column in data.items())
                raise user_error(error, f"input_fn: it raised this for the columns {columns}") from None
        if self._cache is not None:
            self._cache[partition] = (dict(data), prepared)
        return prepared

    def _call_model_fn(self, hp: HyperParameters) -> tuple[Module, Optimizer]:
        pair = build_module(self._model_fn, hp, "model_fn")
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], Optimizer):
            given = [type(part).__name__ for part in pair] if isinstance(pair, tuple) else type(pair).__name__
            raise TrainerError(f"model_fn: it returned {given}; expected (model, optimizer)")
        return pair

    def _call_train_fn(
        self,
        data: Any,
        model: TorchModel,
        optimizer: Optimizer | None,
        values: Mapping[str, Scalar],
        advance: Callable[[float], Mapping[str, Scalar]] | None = None,
    ) -> dict[str, float]:
        purpose = "train" if optimizer is not None else "evaluate (optimizer None, parameters frozen)"
        hp = HyperParameters(values, "train_fn", advance)
        try:
            metrics = self._train_fn(data, model.module, optimizer, hp)
        except Exception as error:
            raise user_error(error, f"train_fn: it raised this when called to {purpose}") from None
        model.used |= hp.reads
        if not isinstance(metrics, Mapping):
            raise TrainerError(
                f"train_fn: it returned {type(metrics).__name__} when called to {purpose}; "
                "expected a dictionary of metrics, such as {'loss': 0.3}"
            )
        return {name: as_number(name, value) for name, value in metrics.items()}


def _advance_function(model: TorchModel, unit: UnitSpec) -> Callable[[float], Mapping[str, Scalar]]:
    """Return the function that moves the model to the values at a fraction of a unit."""

    def advance(fraction: float) -> Mapping[str, Scalar]:
        # The end of a unit belongs to the next one, so that a change at an epoch boundary does not come too early.
        values = unit.at(round(min(fraction, 1 - 2**-30) * 2**30), 2**30)
        before = model.tuned.optimizer
        model.apply(values)
        if model.tuned.optimizer is not before:
            raise TrainerError(
                f"optimizer: {type(before).__name__} would become {type(model.tuned.optimizer).__name__} "
                "within a unit, while train_fn still holds the old one; let it change at the start of an epoch"
            )
        return values

    return advance


def _same(one: Columns, two: Columns) -> bool:
    """Return whether both hold the same array objects."""
    return one.keys() == two.keys() and all(one[name] is two[name] for name in one)
