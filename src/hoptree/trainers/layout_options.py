"""Which layouts a trainer's models can have: what the trainer can do, limited to what the user has fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.schedules import Scalar
from hoptree.trainers.errors import LayoutError
from hoptree.trainers.gang import ModelPlacement

if TYPE_CHECKING:
    from hoptree.trainers.base import Trainer


def layout_options(trainer: Trainer, model: Any, values: Mapping[str, Scalar]) -> LayoutOptions:
    """Return the layouts that a model can have; raise ``LayoutError`` if the one that is fixed is impossible."""
    return LayoutOptions(
        _kinds(trainer, model),
        _option("offload", trainer.offload, trainer.can_offload(model)),
        _option("checkpoint", trainer.checkpoint, trainer.can_checkpoint(model)),
        tuple(sorted(set(values) - set(trainer.architecture(model, values)))),
    )


def has_parts(trainer: Trainer) -> bool:
    """Return whether a trainer builds models otherwise than whole and in memory."""
    from hoptree.trainers.base import Trainer

    return type(trainer).build_part is not Trainer.build_part


def offloaded() -> ModelPlacement:
    """Return how one worker holds a model that needs least memory."""
    return ModelPlacement(Layout(SINGLE, offload=True))


def _kinds(trainer: Trainer, model: Any) -> tuple[str, ...]:
    kinds, fixed = trainer.layout_kinds(model), trainer.layout
    if fixed == "auto":
        possible = tuple(kind for kind, why in kinds.items() if not why)
        if not possible:
            reasons = "; ".join(f"{kind}: {why}" for kind, why in kinds.items())
            raise LayoutError(f"layout: this model can have none ({reasons})")
        return possible
    if fixed not in kinds:
        names = ", ".join(map(repr, kinds))
        raise LayoutError(f"layout: {fixed!r} is not known to {type(trainer).__name__}; expected 'auto' or {names}")
    if kinds[fixed]:
        raise LayoutError(f"layout: {fixed!r}: {kinds[fixed]}")
    if fixed not in (SINGLE, DATA) and trainer.shards < 2:
        raise LayoutError(
            f"layout: {fixed!r} divides a model among workers, but shards={trainer.shards}; give the "
            "trainer shards=2 or more"
        )
    return (fixed,)


def _option(name: str, fixed: bool | None, why_not: str) -> tuple[bool, ...]:
    if fixed and why_not:
        raise LayoutError(f"{name}: True, but {why_not}; expected False or 'auto'")
    if fixed is not None:
        return (fixed,)
    return (False,) if why_not else (False, True)
