"""A worker agrees with its driver: it has loaded the code that the driver has named, and no other version of it.

A trainer is pickled by reference to the user's modules, which a worker imports from disk. They may have been edited
since the driver imported them, or another node may have other files. So its fingerprint is sent along, and
a worker computes it again from what it has loaded.
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
    """A trainer as one process has loaded it: its fingerprint, and what tells where another process differs."""

    fingerprint: str
    modules: Mapping[str, str]  # the user's modules that it uses, and a digest of what it uses of each
    parts: Mapping[str, str]
    patched: Sequence[str]  # functions of libraries that the user's code has replaced

    @classmethod
    def of(cls, trainer: Trainer) -> TrainerIdentity:
        """Return the identity of a trainer in this process."""
        parts = dict(trainer.fingerprint_parts)
        return cls(trainer.fingerprint, _modules(trainer), parts, _patched(parts.get("libraries", "")))


@final
class SentTrainer:
    """A trainer on its way: whoever unpickles it gets the trainer itself, or an error if it is not the same."""

    def __init__(self, pickled: bytes, identity: TrainerIdentity) -> None:
        self._pickled = pickled
        self._identity = identity

    def __reduce__(self) -> tuple[object, ...]:
        return load_agreed, (self._pickled, self._identity)


def load_agreed(pickled: bytes, there: TrainerIdentity) -> Trainer:
    """Return the trainer; raise ``RefusedError`` with the module that differs from the driver's."""
    import cloudpickle

    trainer: Trainer = cloudpickle.loads(pickled)
    if trainer.fingerprint != there.fingerprint:
        raise RefusedError(_difference(there, TrainerIdentity.of(trainer)))
    return trainer


def _difference(there: TrainerIdentity, here: TrainerIdentity) -> str:
    """Say what differs between the driver's trainer and the worker's."""
    where = f"the worker on {socket.gethostname()}"
    names = sorted(
        name for name in {*there.modules, *here.modules} if there.modules.get(name) != here.modules.get(name)
    )
    own = [name for name in names if name != _PROGRAM]
    if own:
        listed = ", ".join(_described(name) for name in own)
        return (
            f"module{'s' if len(own) > 1 else ''} {listed}: {where} has loaded another version than this program; "
            "was it edited since the program imported it, or is it another file there? Restart the program (in a "
            "notebook: restart the kernel, or reload the module and make the trainer anew)"
        )
    if patched := sorted(set(there.patched) ^ set(here.patched)):
        return (
            f"trainer: the program has replaced {', '.join(patched)}, and {where} does not see that: do it in a "
            "module which the trainer's functions are imported from, or use a class of your own"
        )
    different = [
        f"{name} {there.parts.get(name, '')!r} here and {value!r} there"
        for name, value in here.parts.items()
        if name != "code" and there.parts.get(name) != value
    ]
    if different:
        return f"trainer: {where} has another environment than this program: {'; '.join(different)}"
    return (
        f"trainer: {where} does not have the same code as this program, though its modules are the same. Has the "
        "program changed a library's class or function, or a variable of a module, after importing it? Workers do "
        "not see that: make the change in a module which the trainer's functions are imported from"
    )


def _modules(trainer: Trainer) -> dict[str, str]:
    from hoptree.identity.errors import IdentityError
    from hoptree.identity.fingerprints import covered

    with suppress(IdentityError):  # a trainer that names itself may hold what cannot be compared
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
