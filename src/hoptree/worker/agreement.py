"""Checks that a worker has loaded the same code as its driver.

A trainer is pickled by reference to the user's modules, which a worker imports from disk. They may have been edited
since the driver imported them, or another node may have other files. So the driver sends the trainer's fingerprint
along, and a worker computes it again from the code that it has loaded.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, final

from hoptree.core.errors import RefusedError

if TYPE_CHECKING:
    from hoptree.trainers.base import Trainer

_PROGRAM = "__main__"


class TrainerIdentity(NamedTuple):
    """A trainer as one process has loaded it: its fingerprint, and details that show where another one differs."""

    fingerprint: str
    modules: Mapping[str, str]  # digests of the code that it uses, by the user's modules
    parts: Mapping[str, str]
    patched: Sequence[str]  # functions of libraries that the user's code has replaced

    @classmethod
    def of(cls, trainer: Trainer) -> TrainerIdentity:
        """Return the identity of a trainer in this process."""
        parts = dict(trainer.fingerprint_parts)
        return cls(trainer.fingerprint, _modules(trainer), parts, _patched(parts.get("libraries", "")))


@final
class SentTrainer:
    """A trainer that is sent to a worker: unpickling returns the trainer, or raises an error if it differs."""

    def __init__(self, pickled: bytes, identity: TrainerIdentity) -> None:
        self._pickled = pickled
        self._identity = identity

    def __reduce__(self) -> tuple[object, ...]:
        return load_checked_trainer, (self._pickled, self._identity)


def load_checked_trainer(pickled: bytes, driver: TrainerIdentity) -> Trainer:
    """Return the trainer; raise ``RefusedError`` that names the module that differs from the driver's."""
    import cloudpickle

    trainer: Trainer = cloudpickle.loads(pickled)
    if trainer.fingerprint != driver.fingerprint:
        raise RefusedError(_difference(driver, TrainerIdentity.of(trainer)))
    return trainer


def _difference(driver: TrainerIdentity, worker: TrainerIdentity) -> str:
    """Describe the difference between the driver's trainer and the worker's."""
    where = f"the worker on {socket.gethostname()}"
    names = sorted(
        name for name in {*driver.modules, *worker.modules} if driver.modules.get(name) != worker.modules.get(name)
    )
    own = [name for name in names if name != _PROGRAM]
    if own:
        listed = ", ".join(_described(name) for name in own)
        return (
            f"module{'s' if len(own) > 1 else ''} {listed}: {where} has loaded another version than this program; "
            "was it edited after the program imported it, or is the file different there? Restart the program (in "
            "a notebook: restart the kernel, or reload the module and create the trainer again). Or does it draw "
            "random values when it is imported, such as the weights of a layer? Create them in the model function"
        )
    if patched := sorted(set(driver.patched) ^ set(worker.patched)):
        return (
            f"trainer: the program has replaced {', '.join(patched)}, and {where} does not see that: do it in a "
            "module from which the trainer's functions are imported, or use a class of your own"
        )
    different = [
        f"{name} {driver.parts.get(name, '')!r} here and {value!r} there"
        for name, value in worker.parts.items()
        if name != "code" and driver.parts.get(name) != value
    ]
    if different:
        return f"trainer: {where} has another environment than this program: {'; '.join(different)}"
    return (
        f"trainer: {where} does not have the same code as this program, though its modules are the same. Has the "
        "program changed a library's class or function, or a variable of a module, after importing it? Workers do "
        "not see that: make the change in a module from which the trainer's functions are imported"
    )


def _modules(trainer: Trainer) -> dict[str, str]:
    from hoptree.identity.errors import IdentityError
    from hoptree.identity.fingerprints import covered

    with suppress(IdentityError):  # a trainer with its own fingerprint may hold objects that cannot be compared
        return covered(trainer)
    return {}


def _patched(libraries: str) -> list[str]:
    from hoptree.identity.patches import patches

    return [name for name, _ in patches(release.rpartition("-")[0] for release in libraries.split())]


def _described(name: str) -> str:
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            return f"{name} ({spec.origin})"
    return name
